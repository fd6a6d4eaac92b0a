"""What colizig is and how it is used, as its README and docs/ say it."""
from .colizig_commands import COMMANDS
from .colizig_fact import TOPIC
from .colizig_use import USE
from .colizig_words import WORDS
from .kinds import dress, held, one_turn, vary

SHARE = 0.26
KIND = "colizig"
TOPIC_SHARE = 0.25
FACTS = WORDS + COMMANDS + USE

# A sentence that begins so is no question.
ORDERS = (
    "Tell", "Show", "Explain", "Describe", "Define", "Say", "Give", "I ", "Name", "List", "Please",
    "About", "Help", "Now", "Next", "Let us", "We talk", "With ", "A word", "A sentence", "A line",
    "My ", "The question", "One question", "Someone",
)


def conversation(rng):
    fact = rng.choice(FACTS)
    pattern = rng.choice(fact.asked)
    if fact.topic and rng.random() < TOPIC_SHARE:
        pattern = rng.choice(TOPIC).replace("{t}", fact.topic)
    question = vary(rng, pattern)
    question = question[0].upper() + question[1:]
    question += "." if question.startswith(ORDERS) else "?"
    # One letter less makes "stats" of "status".
    question = dress(rng, question, keep="stats status")
    return one_turn(KIND, question, fact.reply, f"The user asks {fact.about}. {fact.plan}")


def held_out():
    return [held(KIND, f"colizig: {fact.name}", frame, fact.reply)
            for fact in FACTS for frame in fact.held]
