"""Conversations of several turns, whose last question needs what was said before."""
from . import capitals, smalltalk, sums
from .capitals import CAPITALS
from .kinds import Conversation, dress, held, vary
from .places import person

SHARE = 0.12

AND_COUNTRY = [
    "And of {country}?", "And {country}?", "And what about {country}?", "What about {country}?",
    "And the one of {country}?", "And that of {country}?", "How about {country}?",
    "And the capital of {country}?", "And which is it for {country}?", "And for {country}?",
    "Of {country}?", "And in {country}?", "And what is it in {country}?",
    "Same question for {country}.", "The same for {country}(, please|).",
    "(Okay|Thanks|Good|I see), and of {country}?", "(Okay|Thanks|Good|I see), and {country}?",
    "Also of {country}, please.", "Then of {country}?", "{country} too, please.",
    "And what is the one of {country}?", "Now {country}.", "Now the same for {country}.",
    "{country}?", "Do you know it for {country} too?",
]
AND_SUM = [
    "And {op} {b}?", "And {sign} {b}?", "And that {op} {b}?", "{op} {b}?", "And now {op} {b}?",
    "And if I take that {op} {b}?", "What is that {op} {b}?", "And then {op} {b}?",
    "How much is that {op} {b}?", "And what is that {op} {b}?", "Now {op} {b}.",
    "(Okay|Good|Thanks), and {op} {b}?", "And this {op} {b}?", "Now that {op} {b}.",
    "And {op} {b} more?", "Then {op} {b}?", "{sign} {b}?", "And all that {op} {b}?",
    "What if I do {op} {b}?", "And the result {op} {b}?",
]
MY_NAME = [
    "What is my name?", "What's my name?", "Do you know my name?", "Do you remember my name?",
    "What am I called?", "Who am I?", "Tell me my name.", "Can you tell me my name?",
    "Say my name.", "Do you know what I am called?", "And what is my name?",
    "So, what is my name?", "Do you know who I am?", "How am I called?", "Please tell me my name.",
    "My name is?", "Can you say my name?", "Did you forget my name?", "I hope you know my name?",
    "What did I say my name is?", "Which name do I have?", "Could you tell me my name?",
    "Say who I am.", "Do you still know my name?", "And who am I?",
]
LIKE = [
    "I like {thing}.", "I like {thing} best.", "My favourite colour is {thing}.",
    "My favourite colour is {thing}!", "{Thing} is my favourite colour.",
    "The colour I like is {thing}.", "I love {thing}, it is my favourite colour.",
]
LIKED = [
    "What is my favourite colour?", "Which colour do I like?", "Do you know my favourite colour?",
    "What colour do I like best?", "Tell me my favourite colour.",
    "Do you remember my favourite colour?", "Which colour is my favourite?",
    "What colour do I love?", "Which colour do I like best?", "And my favourite colour?",
    "Say my favourite colour.", "Can you tell me which colour I like?",
]
COLOURS = "red blue green yellow black white orange brown pink purple grey".split()
PET = [
    "I have a {animal} named {name}.", "My {animal} is called {name}.",
    "I have a {animal}. It is called {name}.", "The name of my {animal} is {name}.",
    "{name} is my {animal}.", "My {animal}'s name is {name}.",
]
PETS = [
    "What is my {animal} called?", "What is the name of my {animal}?",
    "What is my {animal}'s name?", "Do you know the name of my {animal}?",
    "Tell me the name of my {animal}.", "How is my {animal} called?",
    "Do you remember the name of my {animal}?", "And what is my {animal} called?",
    "Which name does my {animal} have?", "Can you tell me the name of my {animal}?",
    "What do I call my {animal}?",
]
ANIMALS = "dog cat horse bird rabbit mouse fish hamster parrot pony goat".split()
AGAIN = [
    "Can you say that again?", "Say that again, please.", "Please repeat that.",
    "Can you repeat that?", "Could you say that again?", "Again, please.", "Once more, please.",
    "Repeat, please.", "Repeat that.", "What did you say?", "Sorry, what did you say?",
    "I did not understand. Can you say it again?", "Can you repeat your answer?",
    "Please say it again.", "Say it again.", "One more time, please.",
    "Could you repeat that, please?", "Could you repeat your last answer?",
    "Please repeat your answer.", "What was that?", "Tell me again.",
    "I did not hear you. Say that again.", "Say it once more.", "Can you tell me that again?",
    "Repeat your answer.", "Please tell me again.",
]
SURE = [
    "Are you sure?", "Really?", "Is that right?", "Is that true?", "Is this correct?",
    "Are you certain?", "Are you sure about that?", "Can that be right?", "Is that really so?",
    "Are you really sure?", "Is it?", "Sure?",
]

HELD_COUNTRY = [
    "And would you tell me the same for {country}?", "Good to know, and what of {country}?",
]
HELD_SUM = ["Now take that result {op} {b}, please?", "What comes out {op} {b} on top?"]
HELD_NAME = ["Now tell me what my name is.", "Earlier I told you my name, what is it?"]
HELD_AGAIN = ["Would you kindly repeat what you just said?"]


def said(role, text):
    return {"role": role, "content": text}


def turns(*texts):
    """Messages of user and assistant by turns."""
    return [said("assistant" if i % 2 else "user", text) for i, text in enumerate(texts)]


def answered(rng, *modules):
    """A question of another kind with its answer, as turns before the last."""
    return (rng.choice(modules) if modules else other(rng)).conversation(rng)


def other(rng):
    from . import facts_colizig
    return rng.choice([capitals, sums, smalltalk, facts_colizig])


def capital(rng):
    countries = rng.sample(list(CAPITALS), rng.choice([2, 2, 3]))
    messages = []
    for i, country in enumerate(countries):
        if i == 0:
            question = vary(rng, rng.choice(capitals.FRAMES)).format(country=country)
        else:
            question = vary(rng, rng.choice(AND_COUNTRY)).format(country=country)
        question = plainly(rng, question) if i else dress(rng, question, country)
        messages += turns(question, capitals.reply(country))
    return Conversation("capital-followup", messages,
                        f"The user asks for the capital of {country} now. "
                        f"It is {CAPITALS[country]}.")


def plainly(rng, text):
    """Dressed, without a greeting in front: that would be odd in the middle of a talk."""
    roll = rng.random()
    if roll < 0.12:
        text = text.lower()
    if rng.random() < 0.15:
        text = text.rstrip("?.!")
    return text


def sum_on(rng):
    while True:
        sign = rng.choice("+-*")
        a, b = sums.operands(rng, sign)
        if sums.value(a, sign, b) <= 20:
            break
    frame = vary(rng, rng.choice(sums.SAID + sums.WRITTEN))
    question = dress(rng, frame.format(a=a, b=b, op=sums.OPS[sign], sign=sign), "minus times")
    messages = turns(question, sums.reply(a, sign, b))
    now = sums.value(a, sign, b)
    sign, more = rng.choice("++-"), rng.randint(1, 10)
    if sign == "-":
        more = min(more, now)
    question = vary(rng, rng.choice(AND_SUM)).format(op=sums.OPS[sign], sign=sign, b=more)
    messages += turns(plainly(rng, question), sums.reply(now, sign, more))
    return Conversation("sum-followup", messages,
                        f"The last result is {now}. {sums.reply(now, sign, more)}")


def between(rng):
    """What is talked about between telling something and being asked for it."""
    messages = []
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        messages += answered(rng).messages
    return messages


def name(rng):
    who = person(rng)
    told = smalltalk.tidy(vary(rng, rng.choice(smalltalk.NAMED))).format(name=who)
    messages = [*turns(told, smalltalk.named_reply(who)), *between(rng),
                *turns(plainly(rng, rng.choice(MY_NAME)), f"Your name is {who}.")]
    return Conversation("name", messages, f"The user said that the name is {who}.")


def no_name(rng):
    messages = between(rng) if rng.random() < 0.5 else []
    if any("Nice to meet you, " in message["content"] for message in messages):
        messages = []
    messages += turns(plainly(rng, rng.choice(MY_NAME)), "I do not know your name yet.")
    return Conversation("name", messages, "The user has not told me a name.")


def colour(rng):
    thing = rng.choice(COLOURS)
    told = rng.choice(LIKE).format(thing=thing, Thing=thing.capitalize())
    first = turns(told, f"{thing.capitalize()} is a nice colour.")
    if rng.random() < 0.3:  # what is said to the telling itself
        return Conversation("memory", first, f"The user likes {thing}.")
    messages = [*first, *between(rng),
                *turns(plainly(rng, rng.choice(LIKED)), f"Your favourite colour is {thing}.")]
    return Conversation("memory", messages, f"The user said that it is {thing}.")


def pet(rng):
    animal, who = rng.choice(ANIMALS), person(rng)
    told = rng.choice(PET).format(animal=animal, name=who)
    first = turns(told, f"{who} is a lovely name for a {animal}.")
    if rng.random() < 0.3:
        return Conversation("memory", first, f"The {animal} of the user is called {who}.")
    question = plainly(rng, rng.choice(PETS).format(animal=animal))
    messages = [*first, *between(rng), *turns(question, f"Your {animal} is called {who}.")]
    return Conversation("memory", messages, f"The user said that the {animal} is called {who}.")


def thanks(rng):
    messages = answered(rng).messages
    talk = next(one for one in smalltalk.TALKS if one.name == "thanks")
    text = smalltalk.tidy(vary(rng, rng.choice(talk.said)))
    return Conversation("thanks", [*messages, *turns(plainly(rng, text), talk.reply)], talk.thought)


def again(rng):
    messages = answered(rng).messages
    question = plainly(rng, rng.choice(AGAIN))
    return Conversation("again", [*messages, *turns(question, messages[-1]["content"])],
                        "The user wants to hear my last answer again.")


def sure(rng):
    talk = answered(rng, capitals, sums)
    reply = talk.messages[-1]["content"]
    question = plainly(rng, rng.choice(SURE))
    return Conversation("sure", [*talk.messages, *turns(question, f"Yes, I am sure. {reply}")],
                        "The user doubts my answer. It is right.")


def after_talk(rng):
    """Any question after something else was talked about."""
    first, second = answered(rng, smalltalk) if rng.random() < 0.6 else answered(rng), answered(rng)
    return Conversation(second.kind, [*first.messages, *second.messages], second.thought)


DRAWS = [(0.22, capital), (0.14, sum_on), (0.14, name), (0.03, no_name), (0.06, colour), (0.06, pet),
         (0.08, thanks), (0.08, again), (0.04, sure), (0.15, after_talk)]


def conversation(rng):
    return rng.choices([make for _, make in DRAWS], weights=[share for share, _ in DRAWS])[0](rng)


def held_out():
    out = []
    for i, (first, second) in enumerate([("France", "Italy"), ("Spain", "Germany"), ("Japan", "China"),
                                         ("Norway", "Poland")]):
        out.append(held("capital-followup", f"capital: {second}", HELD_COUNTRY[i % 2],
                        capitals.reply(second), country=second,
                        before=turns(f"What is the capital of {first}?", capitals.reply(first))))
    for i, (a, b, more) in enumerate([(2, 3, 4), (5, 5, 3), (4, 3, 2)]):
        out.append(held("sum-followup", f"sum: {a + b} plus {more}", HELD_SUM[i % 2],
                        sums.reply(a + b, "+", more), op="plus", b=more,
                        before=turns(f"What is {a} plus {b}?", sums.reply(a, "+", b))))
    for i, who in enumerate(["Ada", "Max", "Nora"]):
        out.append(held("name", f"name: {who}", HELD_NAME[i % 2], f"Your name is {who}.",
                        before=[*turns(f"My name is {who}.", smalltalk.named_reply(who)),
                                *(turns("What is 2 + 2?", sums.reply(2, "+", 2)) if i else [])]))
    for country in ("France", "Sweden"):
        out.append(held("again", "again", HELD_AGAIN[0], capitals.reply(country),
                        before=turns(f"What is the capital of {country}?", capitals.reply(country))))
    return out
