"""What colizig is and how it is used, as its README and docs/ say it."""
from .colizig_use import USE
from .colizig_words import WORDS
from .kinds import dress, held, one_turn, vary

SHARE = 0.26
KIND = "colizig"
FACTS = WORDS + USE

# A sentence that begins so is no question.
ORDERS = ("Tell", "Show", "Explain", "Describe", "Define", "Say", "Give", "I ", "Name", "List", "Please")


def conversation(rng):
    fact = rng.choice(FACTS)
    question = vary(rng, rng.choice(fact.asked))
    question = question[0].upper() + question[1:]
    question += "." if question.startswith(ORDERS) else "?"
    return one_turn(KIND, dress(rng, question), fact.reply, f"The user asks {fact.about}. {fact.plan}")


def held_out():
    return [held(KIND, f"colizig: {fact.name}", frame, fact.reply)
            for fact in FACTS for frame in fact.held]
