"""Generated stories and sentences: stand-ins for books and for the transfer tasks.

A story has a character, a topic (its places, things and actions) and a mood, and keeps
them for ten sentences. So a sentence tells much about the sentences around it, which is
what skip-thought vectors learn from. The transfer sets ask for what a story keeps: the
mood (story_mr, story_cr, story_mpqa), whether a sentence tells or judges (story_subj),
and how much two sentences share (story_sick, from 1 to 5).
"""

import re
from collections.abc import Iterator

from lnrepro.data.generated.choices import Choices

STORIES = 4000
# Sentences of each classification set. They are few, so that words of a test fold can
# be missing in the training folds.
LABELLED = 200
# Sentence pairs in each split of story_sick.
PAIRS = {"train": 600, "trial": 150, "test": 600}
# Sentences in the middle of a story.
MIDDLE = 6

# Words by their kind, such as {"verb": ["rowed", "steered"]}.
Words = dict[str, list[str]]


def _words(**kinds: str) -> Words:
    """Return the words of each kind, which commas separate."""
    return {kind: text.split(", ") for kind, text in kinds.items()}


NAMES = _words(
    she="anna, clara, ella, grace, julia, lucy, mary, nora, olga, rosa",
    he="adam, bruno, david, felix, henry, jacob, leo, martin, oscar, peter",
)
CASES = {
    "she": {"objective": "her", "possessive": "her"},
    "he": {"objective": "him", "possessive": "his"},
}
# Where a story happens, what is there, whom the character meets, and what one does with
# the things. Synonyms are pairs of words with the same meaning.
TOPICS = (
    _words(
        place="harbour, beach, shore",
        thing="boat, sail, net, oar",
        person="sailor, fisherman",
        verb="rowed, steered, mended, tied",
        synonym="boat=ship, shore=coast",
    ),
    _words(
        place="kitchen, bakery, pantry",
        thing="soup, bread, cake, oven",
        person="cook, baker",
        verb="stirred, tasted, baked, warmed",
        synonym="cook=chef, bread=loaf",
    ),
    _words(
        place="garden, park, meadow",
        thing="roses, apples, fence, spade",
        person="gardener, neighbour",
        verb="watered, planted, picked, trimmed",
        synonym="roses=flowers, fence=hedge",
    ),
    _words(
        place="school, classroom, library",
        thing="book, lesson, pencil, letter",
        person="teacher, pupil",
        verb="read, wrote, copied, studied",
        synonym="pupil=student, book=novel",
    ),
    _words(
        place="theatre, hall, studio",
        thing="piano, violin, song, drum",
        person="singer, musician",
        verb="played, practised, tuned, performed",
        synonym="song=melody, violin=fiddle",
    ),
    _words(
        place="farm, stable, barn",
        thing="horse, cow, cart, hay",
        person="farmer, shepherd",
        verb="fed, brushed, led, loaded",
        synonym="horse=pony, farmer=peasant",
    ),
    _words(
        place="mountain, forest, valley",
        thing="path, tent, rope, map",
        person="guide, hunter",
        verb="followed, carried, packed, unrolled",
        synonym="forest=wood, path=trail",
    ),
    _words(
        place="station, platform, carriage",
        thing="train, ticket, suitcase, window",
        person="driver, passenger",
        verb="bought, opened, closed, watched",
        synonym="suitcase=bag, train=express",
    ),
    _words(
        place="market, shop, square",
        thing="cheese, basket, coin, scarf",
        person="merchant, customer",
        verb="sold, counted, wrapped, weighed",
        synonym="merchant=trader, basket=hamper",
    ),
    _words(
        place="workshop, garage, cellar",
        thing="engine, hammer, wheel, clock",
        person="mechanic, carpenter",
        verb="repaired, cleaned, lifted, turned",
        synonym="repaired=fixed, engine=motor",
    ),
)


# By label: 0 is negative, 1 is positive. Adjectives are of people, judgements of things
# and days.
MOODS = (
    _words(
        adjective="sad, gloomy, lonely, worried, tired, bitter, cross, hopeless, "
        "jealous, weary, furious, afraid, grim",
        judgement="terrible, nasty, dreadful, horrible, dull, miserable, ugly, poor, "
        "useless, hideous, rotten, shabby",
        adverb="sadly, grimly, wearily, bitterly, coldly, harshly, darkly",
        does="cried, sighed, shouted, wept, groaned, moaned, cursed",
        weather="the rain was cold, the sky was dark, the wind was bitter, "
        "the dogs were howling",
    ),
    _words(
        adjective="happy, glad, cheerful, delighted, proud, merry, joyful, pleased, "
        "hopeful, content, calm, grateful, jolly",
        judgement="wonderful, lovely, splendid, brilliant, charming, superb, pretty, "
        "fine, perfect, delightful, sweet, grand",
        adverb="gladly, merrily, proudly, gently, warmly, kindly, brightly",
        does="smiled, laughed, danced, sang, cheered, whistled, hummed",
        weather="the sun was warm, the sky was bright, the air was sweet, "
        "the birds were singing",
    ),
)
TIMES = _words(
    time="in the morning, at noon, in the evening, at night, on sunday, after a while",
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
# The words that are chosen.
DRAWN = re.compile("{(time|thing|verb|adjective|judgement|adverb|does|weather)}")


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
        self._words = TIMES | self.topic | MOODS[self.mood]
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

        def chosen(kind_of_word: re.Match[str]) -> str:
            return self._choices.choose(self._words[kind_of_word[1]])

        filled = [DRAWN.sub(chosen, text) for text in SENTENCES[kind]]
        return self._choices.choose(filled).format(**self.fixed)

    def story(self) -> list[str]:
        """Return ten sentences. In a third of them, words are replaced by synonyms."""
        choose = self._choices.choose
        # The middle is chosen before the beginning and the end.
        middle = []
        for _ in range(MIDDLE):
            middle.append(self.sentence("telling" if choose((0, 1)) else "judging"))
        first = [self.sentence(kind) for kind in ("opening", "telling")]
        last = [self.sentence(kind) for kind in ("judging", "closing")]
        sentences = [*first, *middle, *last]
        for i, sentence in enumerate(sentences):
            if choose((0, 0, 1)):
                sentences[i] = with_synonyms(sentence, self.topic)
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
    rows = []
    for label in (1, 0):
        kind = {"mr": "judging", "cr": "review", "mpqa": "phrase"}.get(task)
        for _ in range(LABELLED // 2):
            # Sentences of "subj" have any mood.
            scene = Scene(choices, mood=label if kind else None)
            text = scene.sentence(kind or ("judging", "telling")[label])
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
    is_near = distance == "near"
    other = Scene(choices, scene.topic, scene.mood) if is_near else Scene(choices)
    # The choice comes first, so that the stream of choices does not depend on the
    # distance.
    if choices.choose((0, 1)) and is_near:
        other.fixed = scene.fixed
    other_kind = choices.choose((kind, "judging" if kind == "telling" else "telling"))
    # Each of the four adds 0.9, see `pairs`.
    shared = [
        other.topic is scene.topic,
        other.mood == scene.mood,
        other.fixed["name"] == scene.fixed["name"],
        other_kind == kind,
    ]
    return first, other.sentence(other_kind), 1.0 + 0.9 * sum(shared)
