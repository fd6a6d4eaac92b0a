"""Small knowledge of the world: opposites, colours, sounds, legs, the calendar, plurals."""
import dataclasses

from .kinds import dress, held, one_turn, vary

SHARE = 0.14
KIND = "thing"


@dataclasses.dataclass
class Group:
    """Questions of one form: asked has the slot {x}, reply and thought {x} and {y}."""
    name: str
    facts: dict
    reply: str
    thought: str
    asked: list
    held: list       # pairs of a frame and the x that it is asked with


def both(pairs):
    return {**pairs, **{y: x for x, y in pairs.items()}}


OPPOSITES = both({
         "hot": "cold", "big": "small", "long": "short", "old": "young", "good": "bad",
         "day": "night", "up": "down", "open": "closed", "happy": "sad", "full": "empty",
         "fast": "slow", "black": "white", "left": "right", "light": "dark", "hard": "soft",
         "wet": "dry", "rich": "poor", "strong": "weak", "early": "late", "high": "low",
         "near": "far", "loud": "quiet", "first": "last", "yes": "no", "true": "false",
     })
COLOURS = {
    "the sky": "blue", "grass": "green", "snow": "white", "blood": "red", "a lemon": "yellow",
    "the sun": "yellow", "coal": "black", "a frog": "green", "a tomato": "red",
    "a banana": "yellow", "a leaf": "green", "milk": "white", "chocolate": "brown",
    "a carrot": "orange", "a polar bear": "white", "a raven": "black", "the sea": "blue",
    "a flamingo": "pink", "an elephant": "grey", "a cucumber": "green",
}
SOUNDS = {
    "a cow": "moo", "a dog": "woof", "a cat": "meow", "a duck": "quack", "a sheep": "baa",
    "a pig": "oink", "a bee": "buzz", "a snake": "hiss", "a lion": "roar", "a horse": "neigh",
    "an owl": "hoot", "a rooster": "cock-a-doodle-doo", "a frog": "croak", "a mouse": "squeak",
    "a wolf": "howl", "a donkey": "hee-haw", "a bird": "tweet", "a turkey": "gobble",
}
LEGS = {
    "a spider": "eight", "a dog": "four", "a cat": "four", "a bird": "two", "an ant": "six",
    "a bee": "six", "a snake": "no", "a horse": "four", "a fish": "no", "a cow": "four",
    "a chicken": "two", "a fly": "six", "a worm": "no", "a person": "two", "an elephant": "four",
    "a table": "four", "a beetle": "six", "a duck": "two",
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November
December""".split()
SEASONS = "spring summer autumn winter".split()
PLURALS = {
    "mouse": "mice", "child": "children", "man": "men", "woman": "women", "foot": "feet",
    "tooth": "teeth", "goose": "geese", "sheep": "sheep", "fish": "fish", "cat": "cats",
    "dog": "dogs", "house": "houses", "box": "boxes", "city": "cities", "baby": "babies",
    "leaf": "leaves", "knife": "knives", "wolf": "wolves", "bus": "buses", "dish": "dishes",
    "potato": "potatoes", "book": "books", "tree": "trees", "ox": "oxen", "person": "people",
    "day": "days", "berry": "berries", "fox": "foxes",
}
COUNTS = {
    "days are in a week": ("A week has seven days.", "a week has seven days"),
    "months are in a year": ("A year has twelve months.", "a year has twelve months"),
    "hours are in a day": ("A day has 24 hours.", "a day has 24 hours"),
    "minutes are in an hour": ("An hour has 60 minutes.", "an hour has 60 minutes"),
    "seconds are in a minute": ("A minute has 60 seconds.", "a minute has 60 seconds"),
    "seasons are in a year": ("A year has four seasons.", "a year has four seasons"),
    "letters are in the alphabet": ("The English alphabet has 26 letters.", "it has 26 letters"),
    "fingers are on a hand": ("A hand has five fingers.", "a hand has five fingers"),
    "wheels are on a bicycle": ("A bicycle has two wheels.", "a bicycle has two wheels"),
    "wheels are on a car": ("A car has four wheels.", "a car has four wheels"),
    "sides are on a triangle": ("A triangle has three sides.", "a triangle has three sides"),
}


def following(names, step):
    return {name: names[(n + step) % len(names)] for n, name in enumerate(names)}


ORDER = [
    "(What|Which) {k} (comes|is|follows) {w} {x}?", "(Tell|Give) me the {k} {w} {x}.",
    "(Name|Say) the {k} {w} {x}.", "What is the {k} {w} {x}?", "What's the {k} {w} {x}?",
    "(Can|Could) you tell me the {k} {w} {x}?", "Do you know the {k} {w} {x}?",
    "Do you know (which|what) {k} comes {w} {x}?", "The {k} {w} {x}?", "{w2} {x} comes which {k}?",
    "(What|Which) {k} (do we have|is it) {w} {x}?", "I want to know the {k} {w} {x}.",
    "What comes {w} {x}?", "What is {w} {x}?", "{w2} {x} comes?", "{w2} {x} comes what?",
    "What {k} will I find {w} {x}?", "What is the name of the {k} {w} {x}?",
    "Please name the {k} {w} {x}.", "Which is the {k} {w} {x}?",
    "Look at the {k} {w} {x}. Which is it?", "Which one is the {k} {w} {x}?",
    "{x}: what is the {k} {w} it?", "Think of {x}. Which {k} is {w} it?",
]


def order(kind, names, step, held_names):
    where = "after" if step > 0 else "before"
    asked = [p.replace("{k}", kind).replace("{w2}", where.capitalize()).replace("{w}", where)
             for p in ORDER]
    return Group(f"{kind} {where}", following(names, step), f"The {kind} {where} {{x}} is {{y}}.",
                 f"The user asks for the {kind} {where} {{x}}. It is {{y}}.",
                 [p.replace(f"follows {where}", f"comes right {where}") for p in asked],
                 [(f"If you look at the {kind} {where} {{x}}, which one is it?", held_names)])


GROUPS = [
    Group("opposite", OPPOSITES, "The opposite of {x} is {y}.",
          "The user asks for the opposite of {x}. It is {y}.",
          asked=[
              "(What is|What's) the opposite of {x}?", "(Tell|Give|Say) me the opposite of {x}.",
              "(Name|Say) the opposite of {x}.", "The opposite of {x}?", "The opposite of {x} is?",
              "(Which|What) word is the opposite of {x}?",
              "(Can|Could) you (tell me|name|say) the opposite of {x}?",
              "Do you know the opposite of {x}?", "What is the (contrary|reverse) of {x}?",
              "Opposite of {x}?", "{x}, and the opposite?", "If it is not {x}, what is it?",
              "Something is not {x}. What is it?", "What (would|do) you call the opposite of {x}?",
              "I (want|need) the opposite of {x}.", "(Which|What) is the opposite of the word {x}?",
              "{x} has which opposite?", "I am looking for the opposite of {x}.",
              "Please say the opposite of {x}.", "Help me with the opposite of {x}.",
              "{x}: opposite?", "{x}: what is the opposite?",
              "Take the word {x}. What is the opposite?", "The word {x} and its opposite?",
              "Which word means not {x}?", "What means the opposite of {x}?",
              "I have the word {x}. Say its opposite.",
          ],
          held=[
              ("The word {x}: what is its opposite?", ["hot", "big", "happy", "fast", "day"]),
              ("Which word means the opposite of {x}?", ["up", "good", "full", "wet"]),
          ]),
    Group("colour", COLOURS, "The colour of {x} is {y}.",
          "The user asks for the colour of {x}. It is {y}.",
          asked=[
              "(What|Which) (colour|color) (is|has) {x}?",
              "(What is|What's) the (colour|color) of {x}?",
              "(Tell|Give) me the (colour|color) of {x}.", "(Name|Say) the (colour|color) of {x}.",
              "The (colour|color) of {x}?", "The (colour|color) of {x} is?",
              "(What|Which) (colour|color) does {x} have?",
              "(Can|Could) you tell me the (colour|color) of {x}?",
              "Do you know the (colour|color) of {x}?",
              "Do you know (what|which) (colour|color) {x} is?",
              "Of (what|which) (colour|color) is {x}?",
              "I (want|need) to know the (colour|color) of {x}.",
              "I want to paint {x}. Which (colour|color) do I take?",
              "Please name the (colour|color) of {x}.",
              "Tell me (what|which) (colour|color) {x} is.", "Is {x} (red|blue|green|white|black)?",
              "When you look at {x}, what is its (colour|color)?",
              "(What|Which) (colour|color) do you see on {x}?",
              "(What|Which) (colour|color) would {x} have?",
              "Look at {x}. Which (colour|color) is it?", "{x}: (what|which) (colour|color)?",
              "What would be the (colour|color) of {x}?",
          ],
          held=[
              ("Looking at {x}, which colour do you see?", ["grass", "snow", "the sky", "a lemon"]),
              ("Which would be the colour of {x}?", ["blood", "coal", "a carrot"]),
          ]),
    Group("sound", SOUNDS, "The sound of {x} is {y}.",
          "The user asks for the sound of {x}. It is {y}.",
          asked=[
              "(What|Which) (sound|noise) does {x} make?", "What does {x} say?",
              "(What is|What's) the (sound|noise) of {x}?",
              "(Tell|Give) me the (sound|noise) of {x}.", "(Name|Say) the (sound|noise) of {x}.",
              "The (sound|noise) of {x}?", "How does {x} (sound|speak|go|talk)?",
              "What (sound|noise) is made by {x}?",
              "(Can|Could) you (make|tell me|say) the (sound|noise) of {x}?",
              "Do you know the (sound|noise) of {x}?",
              "Do you know (what|which) (sound|noise) {x} makes?",
              "Tell me (what|which) (sound|noise) {x} makes.", "Tell me what {x} says.",
              "I want to know the (sound|noise) of {x}.", "Please make the (sound|noise) of {x}.",
              "What do I hear from {x}?", "When {x} speaks, which (sound|noise) do you hear?",
              "I hear {x}. (What|Which) (sound|noise) does it make?",
              "{x}: (what|which) (sound|noise)?", "If you hear {x}, what (sound|noise) is that?",
          ],
          held=[("When I hear {x}, which sound is it?", ["a cow", "a duck", "a cat", "a sheep"])]),
    Group("legs", LEGS, "{x} has {y} legs.",
          "The user asks how many legs {x} has. It has {y} legs.",
          asked=[
              "How many legs does {x} have?", "How many legs has {x}?",
              "How many legs are there on {x}?", "(What is|What's) the number of legs of {x}?",
              "(Tell|Give) me the number of legs of {x}.", "Tell me how many legs {x} has.",
              "(Can|Could) you tell me how many legs {x} has?",
              "Do you know how many legs {x} has?", "On how many legs does {x} (stand|walk|run)?",
              "{x} has how many legs?", "Legs of {x}?", "The number of legs of {x}?",
              "(Count|Please count) the legs of {x}.", "I want to know how many legs {x} has.",
              "Does {x} have (two|four|six|eight) legs?", "Does {x} have (legs|many legs)?",
              "How many legs would I count on {x}?", "{x}: how many legs?",
              "Take {x}: how many legs does it have?", "Look at {x}. How many legs are there?",
              "The legs of {x}, please.",
          ],
          held=[
              (
                  "The legs of {x}: how many are there?",
                  ["a spider", "a dog", "an ant", "a bird", "a snake"],
              ),
          ]),
    Group("plural", PLURALS, "The plural of {x} is {y}.",
          "The user asks for the plural of {x}. It is {y}.",
          asked=[
              "(What is|What's) the plural( form|) of {x}?",
              "(Tell|Give) me the plural( form|) of {x}.", "(Name|Say|Write) the plural of {x}.",
              "The plural of {x}?", "The plural of {x} is?", "Plural of {x}?",
              "(Can|Could) you tell me the plural of {x}?",
              "Do you know the plural( form|) of {x}?",
              "How do you (write|say|form|make) the plural of {x}?", "One {x}, two?",
              "One {x}, many?", "I have one {x}, and you have two?",
              "What is the word for more than one {x}?", "What do you call two of {x}?",
              "(Which|What) is the plural of the word {x}?", "I (want|need) the plural of {x}.",
              "What do I write for more than one {x}?", "{x} in the plural?",
              "{x} has which plural?", "Please say the plural of {x}.", "{x}: plural?",
              "{x}: what is the plural?", "The word {x} and its plural?",
              "Take the word {x}. What is the plural?",
              "There is more than one {x}. What is the plural?",
              "Which plural do I (write|use) for {x}?", "I have the word {x}. Say its plural.",
          ],
          held=[
              ("The word {x}: what is its plural?", ["mouse", "child", "foot", "city"]),
              ("If there is more than one {x}, which plural do I use?", ["tooth", "book", "box"]),
          ]),
    order("day", DAYS, 1, ["Monday", "Friday"]), order("day", DAYS, -1, ["Sunday", "Wednesday"]),
    order("month", MONTHS, 1, ["March", "June", "January"]),
    order("month", MONTHS, -1, ["May", "December"]),
    order("season", SEASONS, 1, ["winter", "spring"]), order("season", SEASONS, -1, ["autumn"]),
    Group("count", {x: y for x, (_, y) in COUNTS.items()}, "",
          "The user asks how many {x}. I know that {y}.",
          asked=[
              "How many {x}?", "Tell me how many {x}.", "(Can|Could) you tell me how many {x}?",
              "Do you know how many {x}?", "I want to know how many {x}.",
              "How many {n} does {t} have?", "How many {n} has {t}?",
              "(Tell|Give) me the number of {n} {i} {t}.",
              "(What is|What's) the number of {n} {i} {t}?", "{t} has how many {n}?",
              "The number of {n} {i} {t}?", "(Count|Please count) the {n} {i} {t}.",
              "How many {n} {i} {t}?", "How many {n} {i} {t} are there?", "I forgot how many {x}.",
              "Please say how many {x}.", "When I count the {n} {i} {t}, how many are there?",
              "{t}: how many {n}?", "If you count the {n} {i} {t}, how many do you find?",
          ],
          held=[
              (
                  "Counting the {n} {i} {t}, how many do you get?", [
                      "days are in a week", "months are in a year", "letters are in the alphabet",
                      "wheels are on a car",
                  ],
              ),
          ]),
]


def slots(group, x):
    """What a frame may name: of "days are in a week" also {n} days, {i} in and {t} a week."""
    out = {"x": x, "y": group.facts[x]}
    if group.name == "count":
        number, rest = x.split(" are ")
        out.update(n=number, i=rest.split(" ", 1)[0], t=rest.split(" ", 1)[1])
    return out


def reply(group, x):
    text = COUNTS[x][0] if group.name == "count" else group.reply.format(x=x, y=group.facts[x])
    return text[0].upper() + text[1:]


def conversation(rng):
    group = rng.choices(GROUPS, weights=[len(g.facts) ** 0.5 for g in GROUPS])[0]
    x = rng.choice(list(group.facts))
    named = slots(group, x)
    question = vary(rng, rng.choice(group.asked)).format(**named)
    question = question[0].upper() + question[1:]
    return one_turn(KIND, dress(rng, question, keep=f"{x} before after"), reply(group, x),
                    group.thought.format(**named))


def held_out():
    out = []
    for group in GROUPS:
        for frame, asked in group.held:
            out += [held(KIND, f"{group.name}: {x}", frame, reply(group, x), **slots(group, x))
                    for x in asked]
    return out
