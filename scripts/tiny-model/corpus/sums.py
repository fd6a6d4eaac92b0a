"""Sums, differences and products of small numbers."""
from .kinds import dress, held, one_turn, vary

SHARE = 0.2
KIND = "sum"

WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen twenty""".split()

# {op} stands between the numbers as it is said, {sign} as it is written.
SAID = [
    "What is {a} {op} {b}?", "What's {a} {op} {b}?", "How much is {a} {op} {b}?",
    "(Calculate|Compute|Work out|Solve) {a} {op} {b}.", "(Tell|Give) me {a} {op} {b}.",
    "(Tell me what|Do you know what|Can you tell me what) {a} {op} {b} is.", "{a} {op} {b} is?",
    "{a} {op} {b} (equals|makes|gives)?", "{a} {op} {b}?", "{a} {op} {b}",
    "What does {a} {op} {b} (make|give|equal)?",
    "(Can|Could) you (calculate|compute|work out) {a} {op} {b}?",
    "I (want|need) to know {a} {op} {b}.", "(Find|Say) {a} {op} {b}.",
    "What do you get for {a} {op} {b}?", "What is the result of {a} {op} {b}?",
    "The result of {a} {op} {b}?", "How much (does|do) {a} {op} {b} make?",
    "Please (calculate|compute|work out) {a} {op} {b}.", "Help me with {a} {op} {b}.",
    "My homework says {a} {op} {b}.", "I cannot work out {a} {op} {b}.",
    "What number is {a} {op} {b}?", "A sum for you: {a} {op} {b}.", "Do you know {a} {op} {b}?",
    "What will {a} {op} {b} be?", "Is it hard to say what {a} {op} {b} is?",
    "Let us calculate {a} {op} {b}.", "How many are {a} {op} {b}?",
    "How many do I get from {a} {op} {b}?", "Work out {a} {op} {b}. What comes out?",
    "What comes out of {a} {op} {b}?", "Which number is {a} {op} {b}?",
    "What (number |)do I get from {a} {op} {b}?", "{a} {op} {b}, what (is|would) that( be|)?",
    "If I work out {a} {op} {b}, what is it?", "What would you get for {a} {op} {b}?",
]
WRITTEN = [
    "{a} {sign} {b}", "{a}{sign}{b}", "{a} {sign} {b} =", "{a}{sign}{b}=", "{a} {sign} {b} = ?",
    "{a}{sign}{b}=?", "{a} {sign} {b}?", "{a}{sign}{b}?", "What is {a} {sign} {b}?",
    "What's {a} {sign} {b}?", "How much is {a} {sign} {b}?",
    "(Calculate|Compute|Solve|Work out) {a} {sign} {b}.",
    "(Calculate|Compute|Solve): {a} {sign} {b}", "Tell me {a} {sign} {b}.",
    "What is the result of {a} {sign} {b}?", "Please solve {a} {sign} {b}.",
]
OWN = {
    "+": [
        "Add {a} and {b}.", "(Add|Please add) {b} to {a}.", "What is the sum of {a} and {b}?",
        "(Tell|Give) me the sum of {a} and {b}.", "How much are {a} and {b}( together|)?",
        "What do {a} and {b} make( together|)?", "Can you add {a} and {b}?",
        "What is {a} and {b} together?", "If I add {b} to {a}, what do I get?",
        "I have {a} apples and get {b} more. How many do I have?",
    ],
    "-": [
        "(Subtract|Take|Please take) {b} from {a}.", "What is {b} less than {a}?",
        "What is the difference of {a} and {b}?", "Can you (subtract|take) {b} from {a}?",
        "What is left of {a} without {b}?", "What do I get if I take {b} from {a}?",
        "If I take {b} from {a}, what do I get?",
        "I have {a} apples and eat {b}. How many are left?",
    ],
    "*": [
        "Multiply {a} by {b}.", "Multiply {a} and {b}.", "Please multiply {a} by {b}.",
        "What is the product of {a} and {b}?", "(Tell|Give) me the product of {a} and {b}.",
        "Can you multiply {a} by {b}?", "What is {a} multiplied by {b}?",
        "How much is {a} multiplied by {b}?", "If I multiply {a} by {b}, what do I get?",
        "I have {a} bags with {b} apples each. How many apples are there?",
    ],
}
SIGNS = {"+": ["+"], "-": ["-"], "*": ["*", "x"]}
OPS = {"+": "plus", "-": "minus", "*": "times"}

HELD = [
    ("How many is {a} {op} {b}?", "+", [(2, 3), (4, 5), (7, 1), (6, 6), (8, 2), (3, 9)]), (
        "When you work out {a} {op} {b}, what comes out?", "-",
        [(9, 4), (7, 3), (10, 2), (8, 7), (6, 1), (10, 7)],
    ),
    (
        "Which number do you get from {a} {op} {b}?", "*",
        [(2, 4), (3, 3), (5, 2), (4, 4), (10, 3), (5, 5)],
    ),
    ("What would {a} {op} {b} be?", "+", [(1, 1), (5, 5), (10, 4), (7, 2), (9, 1), (10, 10)]),
]


def value(a, sign, b):
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def reply(a, sign, b):
    return f"{a} {OPS[sign]} {b} is {value(a, sign, b)}."


def operands(rng, sign):
    if sign == "*":
        return rng.randint(0, 10), rng.randint(0, 10)
    # Small numbers are asked for most.
    top = 10 if rng.random() < 0.7 else 20
    a, b = rng.randint(0, top), rng.randint(0, top)
    return (max(a, b), min(a, b)) if sign == "-" else (a, b)


def conversation(rng):
    sign = rng.choice("+-*")
    a, b = operands(rng, sign)
    frames = rng.choices([SAID, WRITTEN, OWN[sign]], weights=[5, 3, 2])[0]
    frame = vary(rng, rng.choice(frames))
    shown = WORDS if frames is not WRITTEN and rng.random() < 0.2 else [str(n) for n in range(21)]
    question = frame.format(a=shown[a], b=shown[b], op=OPS[sign], sign=rng.choice(SIGNS[sign]))
    question = question[0].upper() + question[1:]
    question = dress(rng, question, keep=f"{shown[a]} {shown[b]} times minus")
    return one_turn(KIND, question, reply(a, sign, b),
                    f"The user asks for {a} {OPS[sign]} {b}. That is {value(a, sign, b)}.")


def held_out():
    return [held(KIND, f"sum: {a} {OPS[sign]} {b}", frame, reply(a, sign, b),
                 a=a, b=b, op=OPS[sign])
            for frame, sign, pairs in HELD for a, b in pairs]
