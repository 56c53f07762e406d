"""Generated stories and sentences: stand-ins for books and for the transfer tasks.

A story has a character, a topic (its places, things and actions) and a mood, and keeps
them for ten sentences. So a sentence tells much about the sentences around it, which is
what skip-thought vectors learn from. The transfer sets ask for what a story keeps: the
mood (story_mr, story_cr, story_mpqa), whether a sentence tells or judges (story_subj),
and how much two sentences share (story_sick, from 1 to 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lnrepro.data.generated.choices import Choices

STORIES = 4000
# Sentences of each classification set. They are few, so that words of a test fold can
# be missing in the training folds.
LABELLED = 200
# Sentence pairs in each split of story_sick.
PAIRS = {"train": 600, "trial": 150, "test": 600}
# Sentences in the middle of a story.
MIDDLE = 6


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = {
    "she": _words("anna clara ella grace julia lucy mary nora olga rosa"),
    "he": _words("adam bruno david felix henry jacob leo martin oscar peter"),
}
OBJECTIVE = {"she": "her", "he": "him"}
POSSESSIVE = {"she": "her", "he": "his"}


class Topic(NamedTuple):
    """Words that belong together.

    Attributes:
      places: where a story happens.
      things: what is there.
      people: whom the character meets.
      verbs: what one does with the things.
      synonyms: pairs (word, other word of the same meaning).
    """

    places: tuple[str, ...]
    things: tuple[str, ...]
    people: tuple[str, ...]
    verbs: tuple[str, ...]
    synonyms: tuple[tuple[str, ...], ...]


def _topic(places: str, things: str, people: str, verbs: str, synonyms: str) -> Topic:
    pairs = tuple(tuple(pair.split("=")) for pair in synonyms.split())
    return Topic(_words(places), _words(things), _words(people), _words(verbs), pairs)


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


class Mood(NamedTuple):
    """Words of one mood.

    Attributes:
      adjectives: of people.
      judgements: adjectives of things and days.
      adverbs: how something is done.
      verbs: what people of this mood do.
      weather: clauses.
    """

    adjectives: tuple[str, ...]
    judgements: tuple[str, ...]
    adverbs: tuple[str, ...]
    verbs: tuple[str, ...]
    weather: tuple[str, ...]


# By label: 0 is negative, 1 is positive.
MOODS = (
    Mood(
        adjectives=_words(
            "sad gloomy lonely worried tired bitter cross hopeless jealous weary "
            "furious afraid grim"
        ),
        judgements=_words(
            "terrible nasty dreadful horrible dull miserable ugly poor useless hideous "
            "rotten shabby"
        ),
        adverbs=_words("sadly grimly wearily bitterly coldly harshly darkly"),
        verbs=_words("cried sighed shouted wept groaned moaned cursed"),
        weather=(
            "the rain was cold",
            "the sky was dark",
            "the wind was bitter",
            "the dogs were howling",
        ),
    ),
    Mood(
        adjectives=_words(
            "happy glad cheerful delighted proud merry joyful pleased hopeful content "
            "calm grateful jolly"
        ),
        judgements=_words(
            "wonderful lovely splendid brilliant charming superb pretty fine perfect "
            "delightful sweet grand"
        ),
        adverbs=_words("gladly merrily proudly gently warmly kindly brightly"),
        verbs=_words("smiled laughed danced sang cheered whistled hummed"),
        weather=(
            "the sun was warm",
            "the sky was bright",
            "the air was sweet",
            "the birds were singing",
        ),
    ),
)
TIMES = (
    "in the morning",
    "at noon",
    "in the evening",
    "at night",
    "on sunday",
    "after a while",
)


class Scene:
    """A character, a topic and a mood, and the sentences about them."""

    def __init__(
        self, choices: Choices, topic: Topic | None = None, mood: int | None = None
    ):
        """Choose what a story is about.

        Args:
          choices: the source of all choices, also of those of the sentences.
          topic: a topic, or None for any.
          mood: index of `MOODS`, or None for any.
        """
        self.choices = choices
        self.topic = topic or choices.choose(TOPICS)
        self.mood = choices.choose((0, 1)) if mood is None else mood
        self.pronoun = choices.choose(("she", "he"))
        self.name = choices.choose(NAMES[self.pronoun])
        self.place = choices.choose(self.topic.places)
        self.person = choices.choose(self.topic.people)

    # Each of the following methods fills in all of its sentences, then chooses one. The
    # order of the choices must not change, because it determines the data set.

    def opening(self) -> str:
        """Return a sentence that says where the story happens."""
        choose = self.choices.choose
        options = (
            f"{self.name} went to the {self.place} {choose(TIMES)} .",
            f"{choose(TIMES)} {self.name} came to the {self.place} .",
            f"there was a {self.place} where {self.name} met the {self.person} .",
        )
        return choose(options)

    def telling(self) -> str:
        """Return a sentence in which something happens."""
        choose = self.choices.choose
        things, verbs = self.topic.things, self.topic.verbs
        name, person, pronoun = self.name, self.person, self.pronoun
        options = (
            f"{pronoun} {choose(verbs)} the {choose(things)} {choose(TIMES)} .",
            f"the {person} {choose(verbs)} the {choose(things)} and the "
            f"{choose(things)} .",
            f"{name} {choose(verbs)} the {choose(things)} with the {person} .",
            f"then {pronoun} {choose(verbs)} the {choose(things)} in the "
            f"{self.place} .",
            f"the {person} gave {OBJECTIVE[pronoun]} the {choose(things)} .",
            f"{name} and the {person} {choose(verbs)} the {choose(things)} .",
        )
        return choose(options)

    def judging(self) -> str:
        """Return a sentence in which somebody feels or judges."""
        choose = self.choices.choose
        things, mood = self.topic.things, MOODS[self.mood]
        name, person, pronoun = self.name, self.person, self.pronoun
        options = (
            f"{pronoun} was {choose(mood.adjectives)} and {choose(mood.verbs)} .",
            f'" what a {choose(mood.judgements)} {choose(things)} ! " said {name} '
            f"{choose(mood.adverbs)} .",
            f"the {choose(things)} was {choose(mood.judgements)} , {pronoun} thought .",
            f"the {person} {choose(mood.verbs)} and looked {choose(mood.adjectives)} .",
            f"it was a {choose(mood.judgements)} day and {choose(mood.weather)} .",
            f"{choose(mood.weather)} , and {name} felt {choose(mood.adjectives)} .",
        )
        return choose(options)

    def closing(self) -> str:
        """Return a sentence in which the character leaves."""
        choose = self.choices.choose
        mood, pronoun = MOODS[self.mood], self.pronoun
        options = (
            f"{choose(mood.adjectives)} , {self.name} left the {self.place} .",
            f"{pronoun} {choose(mood.adverbs)} took {POSSESSIVE[pronoun]} "
            f"{choose(self.topic.things)} home .",
            f"so {self.name} and the {self.person} {choose(mood.verbs)} and went "
            "home .",
        )
        return choose(options)

    def story(self) -> list[str]:
        """Return ten sentences. In a third of them, words are replaced by synonyms."""
        choose = self.choices.choose
        # The middle is chosen before the beginning and the end.
        middle = []
        for _ in range(MIDDLE):
            sentence = self.telling() if choose((0, 1)) else self.judging()
            middle.append(sentence)
        first = [self.opening(), self.telling()]
        last = [self.judging(), self.closing()]
        sentences = []
        for sentence in [*first, *middle, *last]:
            if choose((0, 0, 1)):
                sentence = with_synonyms(sentence, self.topic)
            sentences.append(sentence)
        return sentences


def with_synonyms(sentence: str, topic: Topic) -> str:
    """Replace words of a topic by their synonyms."""
    for word, synonym in topic.synonyms:
        # The blanks keep parts of other words as they are.
        sentence = sentence.replace(f" {word} ", f" {synonym} ")
    return sentence


def texts(count: int = STORIES, seed: int = 1) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every story.

    Args:
      count: number of stories.
      seed: seed of all choices.
    """
    choices = Choices(seed)
    for i in range(count):
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
    choose = choices.choose

    def sentence(label: int) -> str:
        if task == "subj":
            scene = Scene(choices)
            return scene.telling() if label else scene.judging()
        scene = Scene(choices, mood=label)
        mood, things = MOODS[label], scene.topic.things
        if task == "mr":
            return scene.judging()
        if task == "cr":
            options = (
                f"the {choose(things)} of the {scene.person} was "
                f"{choose(mood.judgements)} .",
                f"a {choose(mood.judgements)} {choose(things)} , and the "
                f"{choose(things)} was {choose(mood.judgements)} .",
            )
        else:
            options = (
                f"{choose(mood.adjectives)} and {choose(mood.adjectives)}",
                f"{choose(mood.judgements)} {choose(things)}",
                f"{choose(mood.verbs)} {choose(mood.adverbs)}",
            )
        return choose(options)

    half = LABELLED // 2
    return [(sentence(label), label) for label in [1] * half + [0] * half]


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
    is_telling = choices.choose((True, False))
    first = scene.telling() if is_telling else scene.judging()
    # One sixth of the pairs is the same, half is near and a third is far.
    kind = choices.choose(("same", "near", "near", "near", "far", "far"))
    if kind == "same":
        return first, with_synonyms(first, scene.topic), 5.0
    if kind == "near":
        other = Scene(choices, scene.topic, scene.mood)
    else:
        other = Scene(choices)
    # The choice comes first, so that the stream of choices does not depend on the kind.
    if choices.choose((0, 1)) and kind == "near":
        other.name, other.pronoun = scene.name, scene.pronoun
        other.place, other.person = scene.place, scene.person
    same_kind = choices.choose((True, False))
    second = other.telling() if is_telling == same_kind else other.judging()
    # Each of the four adds 0.9, see `pairs`.
    shared = [
        other.topic is scene.topic,
        other.mood == scene.mood,
        other.name == scene.name,
        same_kind,
    ]
    return first, second, 1.0 + 0.9 * sum(shared)
