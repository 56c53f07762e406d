"""Generated news stories with a cloze question each, as .question files (question.py): the embedded stand-in for CNN's.

A story reports four events, each of another person and some at a named place, in any order and between sentences that
name any of them again. The question says one of the events in other words and leaves out its person or place. So
nothing but reading tells the answer: every person and every place is as likely, and how often a name occurs says nothing.
Entities are numbered at random in every story.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

from lnrepro.data.official.question import FOLDERS

SPLITS = {"training": 4000, "validation": 400, "test": 400}
ENTITIES = 12
EVENTS_TOLD = 4

PEOPLE = "Anna Berg;Tom Okoro;Lena Voss;Igor Petrov;Mara Quint;Paul Adeyemi;Rosa Lind;Omar Haddad;Jun Sato;Eva Novak"
PLACES = "Norhaven;Port Ellis;Kaldera;Westmoor;San Ilario;Grunfeld;Tarsis;Oakbridge;Vellamo;Rio Pardo"

# What happens, in the story's words, and in the question's; X the person, Y the place.
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
# Sentences that say nothing new; X any of the names so far.
FILLERS = (
    "many readers already know X",
    "a spokesman for X did not comment",
    "X has been in the news before",
    "it was a busy week for X",
    "nobody had expected this of X",
    "more about X will follow tomorrow",
)
WHEN = (
    "on monday",
    "on friday",
    "last week",
    "this morning",
    "yesterday",
    "earlier this year",
)


class Draw:
    """Random choices, the same for a seed in every Python: from random() alone, whose stream is fixed by contract."""

    def __init__(self, seed: int):
        self.random = random.Random(seed).random

    def below(self, n: int) -> int:
        """One of 0, ..., n - 1."""
        return int(self.random() * n)

    def some(self, items: object, k: int) -> list:
        """k different ones of `items`, in random order."""
        return sorted(items, key=lambda _: self.random())[:k]


def story(draw: Draw) -> str:
    """The text of one .question file without its address."""
    numbers = draw.some(range(ENTITIES), ENTITIES)
    events = draw.some(range(len(EVENTS)), EVENTS_TOLD)
    placed = set(draw.some(range(EVENTS_TOLD), 3))
    people, places = numbers[:EVENTS_TOLD], numbers[EVENTS_TOLD : EVENTS_TOLD + 3]
    named, told, places_of = [], [], {}
    for i, event in enumerate(events):
        text = EVENTS[event][0].replace("X", f"@entity{people[i]}")
        when = WHEN[draw.below(len(WHEN))]
        named.append(people[i])
        if i in placed:
            places_of[i] = places[len(places_of)]
            named.append(places_of[i])
            text += f" in @entity{places_of[i]}"
        told.append(f"{when} {text} ." if draw.below(2) else f"{text} {when} .")
        if draw.below(2):
            filler = FILLERS[draw.below(len(FILLERS))]
            told.append(
                filler.replace("X", f"@entity{named[draw.below(len(named))]}") + " ."
            )
    asked = draw.below(EVENTS_TOLD)
    question = EVENTS[events[asked]][1]
    if asked in places_of and draw.below(2):
        answer = places_of[asked]
        question = question.replace("X", f"@entity{people[asked]}") + " in @placeholder"
    else:
        answer = people[asked]
        question = question.replace("X", "@placeholder")
    names = dict(zip(people, draw.some(PEOPLE.split(";"), EVENTS_TOLD), strict=True))
    names |= dict(zip(places, draw.some(PLACES.split(";"), len(places)), strict=True))
    lines = [f"@entity{n}:{names[n]}" for n in sorted(names)]
    return "\n\n".join([" ".join(told), question, f"@entity{answer}", "\n".join(lines)])


def files() -> Iterator[tuple[str, str, bytes]]:
    """(split, path, content) of every story, the same ones everywhere."""
    for number, (folder, count) in enumerate(SPLITS.items()):
        draw = Draw(number)
        for i in range(count):
            address = f"generated/{folder}/{i:05d}"
            content = f"{address}\n\n{story(draw)}".encode()
            yield (
                FOLDERS[folder],
                f"questions/{folder}/{hashlib.sha1(address.encode()).hexdigest()}.question",
                content,
            )
