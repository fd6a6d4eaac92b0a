"""Answers that are one line of JSON and nothing else."""
import json

from .capitals import CAPITALS
from .kinds import Conversation, dress, held, vary
from .places import person
from .things import COLOURS, OPPOSITES

SHARE = 0.05

ABOUT = {
    "capital": [
        "What is the capital of {thing}?", "the capital of {thing}", "Capital of {thing}?",
        "Which city is the capital of {thing}?", "Name the capital of {thing}.",
    ],
    "sum": [
        "What is {thing}?", "{thing}", "How much is {thing}?", "Add {thing}.", "Work out {thing}.",
        "the sum {thing}",
    ],
    "colour": [
        "What colour is {thing}?", "the colour of {thing}", "What is the colour of {thing}?",
        "Which colour does {thing} have?",
    ],
    "opposite": [
        "What is the opposite of {thing}?", "the opposite of {thing}", "Opposite of {thing}?",
        "Give the opposite of {thing}.",
    ],
}
WRAP = [
    "Answer in JSON: {ask}", "Answer in JSON. {ask}", "{ask} Answer in JSON.",
    "Reply in JSON: {ask}", "Reply with JSON: {ask}", "{ask} Reply in JSON.",
    "As JSON, please: {ask}", "{ask} As JSON, please.", "In JSON: {ask}", "JSON only: {ask}",
    "{ask} JSON only.", "Give me JSON: {ask}", "{ask} Use JSON.", "Use JSON. {ask}",
    "Please answer in JSON: {ask}", "{ask} Please answer in JSON.", "Write JSON: {ask}",
    "{ask} Give the answer as JSON.", "Return JSON: {ask}", "Return only JSON. {ask}",
    "{ask} Return JSON.", "As JSON: {ask}", "I need JSON. {ask}",
    "Your answer must be JSON: {ask}", "{ask} I want JSON.", "{ask} Format: JSON",
    "Respond in JSON. {ask}", "Respond with JSON only: {ask}",
]
RULES = [
    "Answer in JSON.", "Always answer in JSON.", "Reply with JSON only.", "Your answers are JSON.",
    "Answer in JSON only.", "You answer with one JSON object.",
]
PAIR = [
    "Give me {country} and its capital as JSON.", "Write {country} and its capital as JSON.",
    "JSON with country and capital: {country}", "As JSON with country and capital: {country}",
    "{country} and its capital in JSON, please.",
    "A JSON object with the country {country} and its capital.",
]
CARD = [
    "Write this as JSON: name {name}, age {age}", "Turn this into JSON: name {name}, age {age}",
    "As JSON: name {name}, age {age}", "Make JSON of this: {name} is {age} years old.",
    "Write this as JSON: {name} is {age} years old.", "JSON, please: {name}, {age} years old",
    "Put name and age into JSON: {name} is {age}.",
    "Give me JSON with name and age: {name}, {age}",
]

HELD = [
    "I only read JSON. {ask}", "{ask} Let the reply be JSON.",
    "Could you answer this with JSON: {ask}",
]


def fact(rng):
    """A key, the thing that is asked about, and the value."""
    key = rng.choice(["capital", "sum", "colour", "opposite"])
    if key == "sum":
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        return key, f"{a}{rng.choice([' + ', '+', ' plus '])}{b}", a + b
    facts = {"capital": CAPITALS, "colour": COLOURS, "opposite": OPPOSITES}[key]
    thing, value = rng.choice(list(facts.items()))
    return key, thing, value


def line(**fields):
    return json.dumps(fields, ensure_ascii=False)


def conversation(rng):
    roll = rng.random()
    messages = []
    if roll < 0.12:
        country, city = rng.choice(list(CAPITALS.items()))
        question = dress(rng, rng.choice(PAIR).format(country=country), country)
        reply, what = line(country=country, capital=city), f"The capital of {country} is {city}."
    elif roll < 0.24:
        name, age = person(rng), rng.randint(1, 99)
        question = rng.choice(CARD).format(name=name, age=age)
        reply, what = line(name=name, age=age), f"The name is {name} and the age is {age}."
    else:
        key, thing, value = fact(rng)
        asked = rng.choice(ABOUT[key]).format(thing=thing)
        if rng.random() < 0.2 and asked[0].isupper():
            messages = [{"role": "system", "content": rng.choice(RULES)}]
        else:
            asked = rng.choice(WRAP).format(ask=asked if asked[-1] in ".?" else asked + ".")
        question = dress(rng, vary(rng, asked), thing + " json")
        reply, what = line(**{key: value}), f"The {key} is {value}."
    messages += [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
    return Conversation("json", messages, f"{what} I answer in JSON.")


def held_out():
    asked = [("capital", "France", "Paris"), ("capital", "Japan", "Tokyo"), ("capital", "Spain", "Madrid"),
             ("colour", "grass", "green"), ("colour", "snow", "white"), ("opposite", "hot", "cold"),
             ("opposite", "fast", "slow"), ("sum", "2 + 3", 5), ("sum", "4 + 4", 8)]
    out = []
    for i, (key, thing, value) in enumerate(asked):
        question = ABOUT[key][0]
        out.append(held("json", f"{key} {thing}", HELD[i % len(HELD)], line(**{key: value}),
                        ask=question.format(thing=thing)))
    return out
