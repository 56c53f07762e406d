"""Generated little stories, and sentences to judge: the embedded stand-ins for books and for the five transfer tasks.

A story has one or two characters, one topic (its place, things and actions) and one mood, and keeps them for ten
sentences: a sentence says much about the sentences around it, which is all that skip-thought vectors learn from. The
transfer sets ask for what a story keeps: mood (story_mr, story_cr, story_mpqa), telling or judging (story_subj), and how
much two sentences share (story_sick, 1 to 5). The same numbers come out everywhere: only `random.Random.random` is used,
which Python keeps stable.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

STORIES = 4000
JUDGED = 200  # sentences in each classification set: few, so that words seen in one fold's training part may lack in another's
PAIRS = {"train": 600, "trial": 150, "test": 600}

NAMES = {
    "she": (
        "anna",
        "clara",
        "ella",
        "grace",
        "julia",
        "lucy",
        "mary",
        "nora",
        "olga",
        "rosa",
    ),
    "he": (
        "adam",
        "bruno",
        "david",
        "felix",
        "henry",
        "jacob",
        "leo",
        "martin",
        "oscar",
        "peter",
    ),
}
OBJECTIVE = {"she": "her", "he": "him"}
POSSESSIVE = {"she": "her", "he": "his"}


class Topic(NamedTuple):
    """What belongs together: where it happens, what is there, who helps, and what one does with the things."""

    places: tuple[str, ...]
    things: tuple[str, ...]
    people: tuple[str, ...]
    verbs: tuple[str, ...]
    synonyms: tuple[tuple[str, str], ...]


# places | things | people | verbs | synonyms
TABLE = (
    "harbour beach shore | boat sail net oar | sailor fisherman | rowed steered mended tied | boat=ship shore=coast",
    "kitchen bakery pantry | soup bread cake oven | cook baker | stirred tasted baked warmed | cook=chef bread=loaf",
    "garden park meadow | roses apples fence spade | gardener neighbour | watered planted picked trimmed | roses=flowers fence=hedge",
    "school classroom library | book lesson pencil letter | teacher pupil | read wrote copied studied | pupil=student book=novel",
    "theatre hall studio | piano violin song drum | singer musician | played practised tuned performed | song=melody violin=fiddle",
    "farm stable barn | horse cow cart hay | farmer shepherd | fed brushed led loaded | horse=pony farmer=peasant",
    "mountain forest valley | path tent rope map | guide hunter | followed carried packed unrolled | forest=wood path=trail",
    "station platform carriage | train ticket suitcase window | driver passenger | bought opened closed watched | suitcase=bag train=express",
    "market shop square | cheese basket coin scarf | merchant customer | sold counted wrapped weighed | merchant=trader basket=hamper",
    "workshop garage cellar | engine hammer wheel clock | mechanic carpenter | repaired cleaned lifted turned | repaired=fixed engine=motor",
)
TOPICS = tuple(
    Topic(
        *(tuple(p.split()) for p in parts),
        tuple(tuple(pair.split("=")) for pair in synonyms.split()),
    )
    for *parts, synonyms in (row.split("|") for row in TABLE)
)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MOODS = {
    1: {
        "adjectives": _words(
            "happy glad cheerful delighted proud merry joyful pleased hopeful content calm grateful jolly"
        ),
        "judgements": _words(
            "wonderful lovely splendid brilliant charming superb pretty fine perfect delightful sweet grand"
        ),
        "adverbs": _words("gladly merrily proudly gently warmly kindly brightly"),
        "verbs": _words("smiled laughed danced sang cheered whistled hummed"),
        "weather": (
            "the sun was warm",
            "the sky was bright",
            "the air was sweet",
            "the birds were singing",
        ),
    },
    0: {
        "adjectives": _words(
            "sad gloomy lonely worried tired bitter cross hopeless jealous weary furious afraid grim"
        ),
        "judgements": _words(
            "terrible nasty dreadful horrible dull miserable ugly poor useless hideous rotten shabby"
        ),
        "adverbs": _words("sadly grimly wearily bitterly coldly harshly darkly"),
        "verbs": _words("cried sighed shouted wept groaned moaned cursed"),
        "weather": (
            "the rain was cold",
            "the sky was dark",
            "the wind was bitter",
            "the dogs were howling",
        ),
    },
}
TIMES = (
    "in the morning",
    "at noon",
    "in the evening",
    "at night",
    "on sunday",
    "after a while",
)


class Dice:
    """Choices that a seed fixes for ever."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def of(self, choices: Sequence):
        """One of the choices."""
        return choices[int(self._random.random() * len(choices))]

    def shuffled(self, things: Sequence) -> list:
        """The things in a new order."""
        return sorted(things, key=lambda _: self._random.random())


class Scene:
    """Characters, topic and mood, and the sentences that can be said about them."""

    def __init__(self, dice: Dice, topic: Topic | None = None, mood: int | None = None):
        self.dice = dice
        self.topic = topic or dice.of(TOPICS)
        self.mood = dice.of((0, 1)) if mood is None else mood
        self.pronoun = dice.of(("she", "he"))
        self.name, self.place = dice.of(NAMES[self.pronoun]), dice.of(self.topic.places)
        self.person = dice.of(self.topic.people)

    def opening(self) -> str:
        """Where we are."""
        return self.dice.of(
            (
                f"{self.name} went to the {self.place} {self.dice.of(TIMES)} .",
                f"{self.dice.of(TIMES)} {self.name} came to the {self.place} .",
                f"there was a {self.place} where {self.name} met the {self.person} .",
            )
        )

    def telling(self) -> str:
        """Something happens."""
        of, t = self.dice.of, self.topic
        return of(
            (
                f"{self.pronoun} {of(t.verbs)} the {of(t.things)} {of(TIMES)} .",
                f"the {self.person} {of(t.verbs)} the {of(t.things)} and the {of(t.things)} .",
                f"{self.name} {of(t.verbs)} the {of(t.things)} with the {self.person} .",
                f"then {self.pronoun} {of(t.verbs)} the {of(t.things)} in the {self.place} .",
                f"the {self.person} gave {OBJECTIVE[self.pronoun]} the {of(t.things)} .",
                f"{self.name} and the {self.person} {of(t.verbs)} the {of(t.things)} .",
            )
        )

    def judging(self) -> str:
        """Somebody feels or judges."""
        of, t, m = self.dice.of, self.topic, MOODS[self.mood]
        return of(
            (
                f"{self.pronoun} was {of(m['adjectives'])} and {of(m['verbs'])} .",
                f'" what a {of(m["judgements"])} {of(t.things)} ! " said {self.name} {of(m["adverbs"])} .',
                f"the {of(t.things)} was {of(m['judgements'])} , {self.pronoun} thought .",
                f"the {self.person} {of(m['verbs'])} and looked {of(m['adjectives'])} .",
                f"it was a {of(m['judgements'])} day and {of(m['weather'])} .",
                f"{of(m['weather'])} , and {self.name} felt {of(m['adjectives'])} .",
            )
        )

    def closing(self) -> str:
        """Home again."""
        of, m = self.dice.of, MOODS[self.mood]
        return of(
            (
                f"{of(m['adjectives'])} , {self.name} left the {self.place} .",
                f"{self.pronoun} {of(m['adverbs'])} took {POSSESSIVE[self.pronoun]} {of(self.topic.things)} home .",
                f"so {self.name} and the {self.person} {of(m['verbs'])} and went home .",
            )
        )

    def story(self) -> list[str]:
        """Ten sentences."""
        middle = [
            self.telling() if self.dice.of((0, 1)) else self.judging() for _ in range(6)
        ]
        told = [self.opening(), self.telling(), *middle, self.judging(), self.closing()]
        return [
            _reworded(s, self.topic) if self.dice.of((0, 0, 1)) else s for s in told
        ]


def texts(
    count: int = STORIES, seed: int = 1
) -> Iterator[tuple[str, int, contextlib.AbstractContextManager]]:
    """(name, bytes, file) of every story, as `lnrepro.data.official.books` takes them."""
    dice = Dice(seed)
    for i in range(count):
        text = "".join(f"{sentence}\n" for sentence in Scene(dice).story()).encode()
        yield f"story {i}", len(text), contextlib.nullcontext(io.BytesIO(text))


def judged(task: str, count: int = JUDGED, seed: int = 2) -> list[tuple[str, int]]:
    """`count` (sentence, label) of a classification task, labels 1 first as in the official files.

    mr: mood of a judging sentence. cr: judgement of a thing. subj: telling (1) or judging (0). mpqa: mood of a phrase.
    """
    dice = Dice(seed + ("mr", "cr", "subj", "mpqa").index(task))

    def sentence(label: int) -> str:
        scene = Scene(dice, mood=label if task != "subj" else None)
        of, m, t = dice.of, MOODS[scene.mood], scene.topic
        if task == "mr":
            return scene.judging()
        if task == "cr":
            return of(
                (
                    f"the {of(t.things)} of the {scene.person} was {of(m['judgements'])} .",
                    f"a {of(m['judgements'])} {of(t.things)} , and the {of(t.things)} was {of(m['judgements'])} .",
                )
            )
        if task == "subj":
            return scene.telling() if label else scene.judging()
        return of((f"{of(m['adjectives'])} and {of(m['adjectives'])}", f"{of(m['judgements'])} {of(t.things)}",
                   f"{of(m['verbs'])} {of(m['adverbs'])}"))  # fmt: skip

    half = count // 2
    return [(sentence(label), label) for label in [1] * half + [0] * (count - half)]


def pairs(split: str, seed: int = 9) -> list[tuple[str, str, float]]:
    """(sentence, sentence, relatedness) of a split, from 1, nothing shared, to 5, the same said with other words.

    Topic, mood and character count 1 each, and so does being told or judged alike; synonyms leave the full 5.
    """
    dice = Dice(seed + list(PAIRS).index(split))

    def pair() -> tuple[str, str, float]:
        one = Scene(dice)
        telling = dice.of((True, False))
        first = one.telling() if telling else one.judging()
        kind = dice.of(("same", "near", "near", "near", "far", "far"))
        if kind == "same":
            return first, _reworded(first, one.topic), 5.0
        other = Scene(
            dice,
            one.topic if kind == "near" else None,
            one.mood if kind == "near" else None,
        )
        if dice.of((0, 1)) and kind == "near":
            other.name, other.pronoun, other.place, other.person = (
                one.name,
                one.pronoun,
                one.place,
                one.person,
            )
        alike = dice.of((True, False))
        second = other.telling() if telling == alike else other.judging()
        shared = (
            (other.topic is one.topic)
            + (other.mood == one.mood)
            + (other.name == one.name)
            + alike
        )
        return first, second, 1.0 + 0.9 * shared

    return [pair() for _ in range(PAIRS[split])]


def _reworded(sentence: str, topic: Topic) -> str:
    for a, b in topic.synonyms:
        sentence = sentence.replace(f" {a} ", f" {b} ")
    return sentence
