"""Generated stories and sentences: stand-ins for books and for the transfer tasks.

A story has a character, a topic (its places, things and actions) and a mood, and keeps
them for ten sentences. So a sentence tells much about the sentences around it, which is
what skip-thought vectors learn from. The transfer sets ask for what a story keeps: the
mood (story_mr, story_cr, story_mpqa), whether a sentence tells or judges (story_subj),
and how much two sentences share (story_sick, from 1 to 5).
"""

import re
from collections.abc import Iterator, Mapping

from lnrepro.data.generated.choices import Choices

STORIES = 4000
# Sentences of each classification set. They are few, so that words of a test fold can
# be missing in the training folds.
LABELLED = 200
# Sentence pairs in each split of story_sick.
PAIRS = {"train": 600, "trial": 150, "test": 600}
# Sentences in the middle of a story.
MIDDLE = 6

# Words by their kind, such as {"verb": ("rowed", "steered")}.
Words = Mapping[str, tuple[str, ...]]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = {
    "she": _words("anna clara ella grace julia lucy mary nora olga rosa"),
    "he": _words("adam bruno david felix henry jacob leo martin oscar peter"),
}
CASES = {
    "she": {"objective": "her", "possessive": "her"},
    "he": {"objective": "him", "possessive": "his"},
}


def _topic(places: str, things: str, people: str, verbs: str, synonyms: str) -> Words:
    return {
        # Where a story happens.
        "place": _words(places),
        # What is there, whom the character meets, and what one does with the things.
        "thing": _words(things),
        "person": _words(people),
        "verb": _words(verbs),
        # Pairs of words with the same meaning, such as "boat=ship".
        "synonym": _words(synonyms),
    }


TOPICS = (
    _topic(
        "harbour beach shore",
        "boat sail net oar",
        "sailor fisherman",
        "rowed steered mended tied",
        "boat=ship shore=coast",
    ),
    _topic(
        "kitchen bakery pantry",
        "soup bread cake oven",
        "cook baker",
        "stirred tasted baked warmed",
        "cook=chef bread=loaf",
    ),
    _topic(
        "garden park meadow",
        "roses apples fence spade",
        "gardener neighbour",
        "watered planted picked trimmed",
        "roses=flowers fence=hedge",
    ),
    _topic(
        "school classroom library",
        "book lesson pencil letter",
        "teacher pupil",
        "read wrote copied studied",
        "pupil=student book=novel",
    ),
    _topic(
        "theatre hall studio",
        "piano violin song drum",
        "singer musician",
        "played practised tuned performed",
        "song=melody violin=fiddle",
    ),
    _topic(
        "farm stable barn",
        "horse cow cart hay",
        "farmer shepherd",
        "fed brushed led loaded",
        "horse=pony farmer=peasant",
    ),
    _topic(
        "mountain forest valley",
        "path tent rope map",
        "guide hunter",
        "followed carried packed unrolled",
        "forest=wood path=trail",
    ),
    _topic(
        "station platform carriage",
        "train ticket suitcase window",
        "driver passenger",
        "bought opened closed watched",
        "suitcase=bag train=express",
    ),
    _topic(
        "market shop square",
        "cheese basket coin scarf",
        "merchant customer",
        "sold counted wrapped weighed",
        "merchant=trader basket=hamper",
    ),
    _topic(
        "workshop garage cellar",
        "engine hammer wheel clock",
        "mechanic carpenter",
        "repaired cleaned lifted turned",
        "repaired=fixed engine=motor",
    ),
)


# By label: 0 is negative, 1 is positive.
MOODS: tuple[Words, Words] = (
    {
        # Of people.
        "adjective": _words(
            "sad gloomy lonely worried tired bitter cross hopeless jealous weary "
            "furious afraid grim"
        ),
        # Of things and days.
        "judgement": _words(
            "terrible nasty dreadful horrible dull miserable ugly poor useless hideous "
            "rotten shabby"
        ),
        "adverb": _words("sadly grimly wearily bitterly coldly harshly darkly"),
        # What people of this mood do.
        "does": _words("cried sighed shouted wept groaned moaned cursed"),
        "weather": (
            "the rain was cold",
            "the sky was dark",
            "the wind was bitter",
            "the dogs were howling",
        ),
    },
    {
        "adjective": _words(
            "happy glad cheerful delighted proud merry joyful pleased hopeful content "
            "calm grateful jolly"
        ),
        "judgement": _words(
            "wonderful lovely splendid brilliant charming superb pretty fine perfect "
            "delightful sweet grand"
        ),
        "adverb": _words("gladly merrily proudly gently warmly kindly brightly"),
        "does": _words("smiled laughed danced sang cheered whistled hummed"),
        "weather": (
            "the sun was warm",
            "the sky was bright",
            "the air was sweet",
            "the birds were singing",
        ),
    },
)
TIMES = (
    "in the morning",
    "at noon",
    "in the evening",
    "at night",
    "on sunday",
    "after a while",
)
# Sentences by their kind. A word in braces is one of a scene, or is chosen among words
# of its kind. The order of all of them determines the data sets.
SENTENCES = {
    # Where the story happens.
    "opening": (
        "{name} went to the {place} {time} .",
        "{time} {name} came to the {place} .",
        "there was a {place} where {name} met the {person} .",
    ),
    # Something happens.
    "telling": (
        "{pronoun} {verb} the {thing} {time} .",
        "the {person} {verb} the {thing} and the {thing} .",
        "{name} {verb} the {thing} with the {person} .",
        "then {pronoun} {verb} the {thing} in the {place} .",
        "the {person} gave {objective} the {thing} .",
        "{name} and the {person} {verb} the {thing} .",
    ),
    # Somebody feels or judges.
    "judging": (
        "{pronoun} was {adjective} and {does} .",
        '" what a {judgement} {thing} ! " said {name} {adverb} .',
        "the {thing} was {judgement} , {pronoun} thought .",
        "the {person} {does} and looked {adjective} .",
        "it was a {judgement} day and {weather} .",
        "{weather} , and {name} felt {adjective} .",
    ),
    # The character leaves.
    "closing": (
        "{adjective} , {name} left the {place} .",
        "{pronoun} {adverb} took {possessive} {thing} home .",
        "so {name} and the {person} {does} and went home .",
    ),
    # Judgements of story_cr, and phrases of story_mpqa.
    "review": (
        "the {thing} of the {person} was {judgement} .",
        "a {judgement} {thing} , and the {thing} was {judgement} .",
    ),
    "phrase": ("{adjective} and {adjective}", "{judgement} {thing}", "{does} {adverb}"),
}
# The same with empty braces for words that are chosen, and the kinds of these.
DRAWN = re.compile("{(time|thing|verb|adjective|judgement|adverb|does|weather)}")
FORMS = {
    kind: [(DRAWN.sub("{}", text), DRAWN.findall(text)) for text in texts]
    for kind, texts in SENTENCES.items()
}


class Scene:
    """A character, a topic and a mood, and the sentences about them.

    Attributes:
      topic: words of the topic.
      mood: index of `MOODS`.
      fixed: the character, the place and the other person.
    """

    def __init__(
        self, choices: Choices, topic: Words | None = None, mood: int | None = None
    ):
        """Choose what a story is about.

        Args:
          choices: the source of all choices, also of those of the sentences.
          topic: a topic, or None for any.
          mood: index of `MOODS`, or None for any.
        """
        self._choices = choices
        self.topic = topic or choices.choose(TOPICS)
        self.mood = choices.choose((0, 1)) if mood is None else mood
        self._words = {"time": TIMES, **self.topic, **MOODS[self.mood]}
        pronoun = choices.choose(("she", "he"))
        self.fixed = {
            "pronoun": pronoun,
            **CASES[pronoun],
            "name": choices.choose(NAMES[pronoun]),
            "place": choices.choose(self.topic["place"]),
            "person": choices.choose(self.topic["person"]),
        }

    def sentence(self, kind: str) -> str:
        """Choose words for all sentences of a kind, and return one of them."""
        choose = self._choices.choose
        filled = []
        for text, kinds in FORMS[kind]:
            filled.append((text, [choose(self._words[kind]) for kind in kinds]))
        text, words = choose(filled)
        return text.format(*words, **self.fixed)

    def story(self) -> list[str]:
        """Return ten sentences. In a third of them, words are replaced by synonyms."""
        choose = self._choices.choose
        # The middle is chosen before the beginning and the end.
        middle = []
        for _ in range(MIDDLE):
            middle.append(self.sentence("telling" if choose((0, 1)) else "judging"))
        first = [self.sentence(kind) for kind in ("opening", "telling")]
        last = [self.sentence(kind) for kind in ("judging", "closing")]
        sentences = []
        for sentence in [*first, *middle, *last]:
            if choose((0, 0, 1)):
                sentence = with_synonyms(sentence, self.topic)
            sentences.append(sentence)
        return sentences


def with_synonyms(sentence: str, topic: Words) -> str:
    """Replace words of a topic by their synonyms."""
    for pair in topic["synonym"]:
        word, _, synonym = pair.partition("=")
        # The blanks keep parts of other words as they are.
        sentence = sentence.replace(f" {word} ", f" {synonym} ")
    return sentence


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every story."""
    choices = Choices(1)
    for i in range(STORIES):
        lines = [f"{sentence}\n" for sentence in Scene(choices).story()]
        yield f"story {i}", "".join(lines)


def labelled(task: str) -> list[tuple[str, int]]:
    """Return `LABELLED` pairs (sentence, label) of a classification task.

    Label 1 comes first, as in the official files.

    Args:
      task: "mr", the mood of a judging sentence; "cr", the judgement of a thing;
        "subj", whether a sentence tells (1) or judges (0); "mpqa", the mood of a
        phrase.
    """
    # Every task has a seed of its own.
    choices = Choices(2 + ("mr", "cr", "subj", "mpqa").index(task))
    kinds = {"mr": "judging", "cr": "review", "mpqa": "phrase"}
    rows = []
    for label in [1] * (LABELLED // 2) + [0] * (LABELLED // 2):
        if task == "subj":
            text = Scene(choices).sentence("telling" if label else "judging")
        else:
            text = Scene(choices, mood=label).sentence(kinds[task])
        rows.append((text, label))
    return rows


def pairs(split: str) -> list[tuple[str, str, float]]:
    """Return (sentence, sentence, relatedness) of a split.

    Relatedness goes from 1, nothing shared, to 5, the same with synonyms. The topic,
    the mood, the character, and whether both tell or both judge add 0.9 each.

    Args:
      split: "train", "trial" or "test".
    """
    # Every split has a seed of its own.
    choices = Choices(9 + list(PAIRS).index(split))
    return [_pair(choices) for _ in range(PAIRS[split])]


def _pair(choices: Choices) -> tuple[str, str, float]:
    scene = Scene(choices)
    kind = choices.choose(("telling", "judging"))
    first = scene.sentence(kind)
    # One sixth of the pairs is the same, half is near and a third is far.
    distance = choices.choose(("same", "near", "near", "near", "far", "far"))
    if distance == "same":
        return first, with_synonyms(first, scene.topic), 5.0
    if distance == "near":
        other = Scene(choices, scene.topic, scene.mood)
    else:
        other = Scene(choices)
    # The choice comes first, so that the stream of choices does not depend on the
    # distance.
    if choices.choose((0, 1)) and distance == "near":
        other.fixed = scene.fixed
    same_kind = choices.choose((True, False))
    other_kind = "judging" if kind == "telling" else "telling"
    second = other.sentence(kind if same_kind else other_kind)
    # Each of the four adds 0.9, see `pairs`.
    shared = [
        other.topic is scene.topic,
        other.mood == scene.mood,
        other.fixed["name"] == scene.fixed["name"],
        same_kind,
    ]
    return first, second, 1.0 + 0.9 * sum(shared)
