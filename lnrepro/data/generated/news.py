"""`news_stories`: generated news stories with a cloze question each, embedded.

They stand in for the stories of CNN. A story reports four events. Each is about another
person, and some happen at a named place. Other sentences between them name any of these
again. The question reports one of the events in other words and leaves out its person
or place. Every person and every place is equally likely to be the answer, whatever
their number of mentions. So only reading tells the answer. Entities are numbered at
random in every story. The format of a file is described in
lnrepro/data/readers/question.py.
"""

from collections.abc import Iterator

from lnrepro.data.generated.choices import Choices
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader
from lnrepro.data.readers.cnn import COLUMNS, File, encode
from lnrepro.data.readers.question import FOLDERS

SPLITS = {"training": 4000, "validation": 400, "test": 400}
ENTITIES = 12
EVENTS_IN_STORY = 4
PLACES_IN_STORY = 3

# What happens, in the words of the story and of the question. X is the person.
EVENTS = (
    ("X won the race by two minutes", "victory for X in the race"),
    ("X was arrested after a long search", "police catch X"),
    ("X opened a new hospital", "patients welcome the clinic of X"),
    ("X published a book about whales", "new work on sea animals by X"),
    ("X resigned as minister", "X leaves the government"),
    ("X found an ancient coin in the mud", "old money discovered by X"),
    ("X scored three goals", "X decides the football match"),
    ("X lost a court case over taxes", "judge rules against X"),
    ("X climbed the highest mountain", "X reaches the summit"),
    ("X sold the family farm", "fields of X have a new owner"),
    ("X sang at the opening concert", "audience loves the voice of X"),
    ("X rescued two children from a river", "X praised for saving lives"),
    ("X bought a painting for millions", "art lover X pays record price"),
    ("X discovered a small planet", "astronomer X sees unknown world"),
    ("X cooked dinner for the king", "royal meal prepared by X"),
    ("X crashed a car into a shop", "accident : X hits store"),
)
# Sentences that tell nothing about the events. X is any name so far.
FILLERS = (
    "many readers already know X",
    "a spokesman for X did not comment",
    "X has been in the news before",
    "it was a busy week for X",
    "nobody had expected this of X",
    "more about X will follow tomorrow",
)
TIMES = (
    "on monday",
    "on friday",
    "last week",
    "this morning",
    "yesterday",
    "earlier this year",
)


def read(raw: RawFolder) -> Content:
    """Generate the stories."""
    return encode(files(), raw)


def story(choices: Choices) -> str:
    """Return the text of one .question file without its address."""
    numbers = choices.shuffle(range(ENTITIES))
    events = choices.shuffle(EVENTS)[:EVENTS_IN_STORY]
    # The events that happen at a place. People and places are different entities.
    with_place = choices.shuffle(range(EVENTS_IN_STORY))[:PLACES_IN_STORY]
    people, places = numbers[:EVENTS_IN_STORY], iter(numbers[EVENTS_IN_STORY:])
    # {index of an event: its place}, and the entities named so far.
    place_of: dict[int, int] = {}
    named: list[int] = []
    sentences = []
    for i, (event, _) in enumerate(events):
        text = event.replace("X", f"@entity{people[i]}")
        time = choices.choose(TIMES)
        named.append(people[i])
        if i in with_place:
            place_of[i] = next(places)
            named.append(place_of[i])
            text += f" in @entity{place_of[i]}"
        time_first = choices.below(2)
        sentences.append(f"{time} {text} ." if time_first else f"{text} {time} .")
        if choices.below(2):
            filler = choices.choose(FILLERS)
            # Only entities that were named before, so that the filler gives nothing new
            # away.
            entity = choices.choose(named)
            sentences.append(filler.replace("X", f"@entity{entity}") + " .")
    # The question asks for the person or, where there is one, half of the time for the
    # place.
    asked = choices.below(EVENTS_IN_STORY)
    _, question = events[asked]
    answer = people[asked]
    if asked in place_of and choices.below(2):
        question = question.replace("X", f"@entity{answer}") + " in @placeholder"
        answer = place_of[asked]
    question = question.replace("X", "@placeholder")
    # Twenty numbers stand between two stories.
    choices.shuffle(range(20))
    return "\n\n".join([" ".join(sentences), question, f"@entity{answer}"])


def files() -> Iterator[File]:
    """Yield the file of every story."""
    for seed, (folder, count) in enumerate(SPLITS.items()):
        choices = Choices(seed)
        for i in range(count):
            content = f"generated/{folder}/{i:05d}\n\n{story(choices)}".encode()
            yield File(FOLDERS[folder], f"questions/{folder}/{i:05d}.question", content)


NEWS_STORIES = Reader(
    title="Short generated news stories and questions about them. NOT the CNN corpus",
    read=read,
    configs=("configs/attentive_reader.py",),
    source="generated by lnrepro/data/generated/news.py",
    licence="Apache-2.0",
    size="4,000 train, 400 valid, 400 test; nothing to download, 1.5 MB prepared",
    columns=COLUMNS,
    embedded=True,
)
