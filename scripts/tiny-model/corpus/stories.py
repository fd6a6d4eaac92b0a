"""Short stories in simple English, told on request.

A story is put together from parts that know of each other: the trouble fits the one who can help,
and what is done about it fits the trouble. Whoever was asked for is the hero."""
from .kinds import dress, one_turn, vary

SHARE = 0.07

HEROES = """cat dog fox bear rabbit mouse owl frog duck horse pony goat sheep lamb squirrel hedgehog wolf lion tiger
elephant monkey turtle penguin parrot sparrow bee ant butterfly snail whale dolphin otter beaver badger deer donkey
dragon robot giant knight wizard princess king queen pirate sailor baker farmer gardener girl boy clown ghost
camel kitten puppy hen swan seal crab cow pig""".split()
GOOD = """little small young brave kind clever old shy happy curious friendly gentle quiet cheerful tiny lazy funny
lonely proud polite""".split()
SHE = {"princess", "queen", "girl", "hen", "cow"}
HE = {"king", "boy"}
PLACES = [
    "in a green forest", "near a river", "on a farm", "in a small village", "by the sea",
    "on a high hill", "in a big garden", "in an old house", "near a lake", "on a small island",
    "in a quiet valley", "at the edge of a wood", "in a busy town", "under a tall tree",
    "behind an old mill", "in a sunny meadow",
]
NAMES_F = "Mila Ada Luna Rosa Bella Nina Lily Emma Clara Daisy Ruby Molly Lena Olga Ida Zoe".split()
NAMES_M = "Tom Max Leo Finn Otto Sam Ben Hugo Oscar Felix Paul Tim Bruno Theo Emil Jack".split()
LOVES = [
    "to sing", "to dance", "to sleep in the sun", "to look at the stars", "to bake bread",
    "to read books", "to collect shells", "to play in the rain", "to tell jokes", "to swim",
    "to climb trees", "to paint", "to count the clouds", "to smell the flowers",
    "to run in the wind",
]
HELPERS = """mouse owl fox rabbit bird frog bear squirrel turtle duck bee goat snail deer hedgehog farmer girl boy
fisherman baker miller beaver crow horse""".split()

# What goes wrong, what is asked for, how the two mend it, and how it ends. {he} is the hero,
# {friend} the helper.
TROUBLES = [
    ("{He} lost {his} red ball", "Can you help me find my ball?",
     "They looked behind every bush, and there it was",
     "They played with the ball until the evening."),
    ("{He} lost {his} way home", "Which way is my house?",
     "The {friend} knew the road and went in front", "Soon they saw the light in the window."),
    ("{He} fell into a deep hole", "Can you pull me out?",
     "The {friend} brought a long rope and pulled hard", "At last {name} stood in the sun again."),
    ("{He} was very hungry and had no food", "Do you have something to eat?",
     "The {friend} had a basket of apples and gave {him} half",
     "They sat on the grass and ate together."),
    ("{He} wanted to cross the river, but there was no bridge", "How can I get to the other side?",
     "They laid a long tree over the water and walked across",
     "On the other side they danced for joy."),
    ("A big storm took the roof of {his} house", "Where can I sleep tonight?",
     "They built a new roof of wood and leaves", "That night it was warm and dry inside."),
    ("{He} could not sleep because the night was dark", "Are you afraid of the dark too?",
     "The {friend} showed {him} the stars and named each one",
     "Then {name} closed {his} eyes and slept well."),
    ("{He} was sad, because nobody came to {his} party", "Will you come to my party?",
     "The {friend} ran through the land and told everyone",
     "In the evening the house was full of guests."),
    ("{He} found a small golden key", "Do you know what it opens?",
     "They tried it on every door, and the last one opened", "Behind it was a room full of books."),
    ("{He} found a map of a hidden treasure", "Will you look for it with me?",
     "They walked all day and dug under a large stone",
     "The treasure was a box of sweets, and they shared it."),
    ("{His} little boat had a hole and filled with water", "Can you help me mend my boat?",
     "They closed the hole with wood and wax", "Then they sailed out under the blue sky."),
    ("{He} wanted to learn to sing, but {he} was too shy", "Will you sing with me?",
     "They sang very softly at first, and then louder and louder",
     "Everybody came to listen and was glad."),
    ("{He} heard someone crying in the dark", "Who is there?",
     "It was {a_friend} with a thorn in the foot, and {name} pulled it out",
     "\"Thank you,\" said the {friend} and smiled."),
    ("{His} garden was dry, because it had not rained for weeks", "Where can I find water?",
     "They carried water from the old well, one bucket after another",
     "A week later the first flower opened."),
    ("{He} broke {his} best cup and began to cry", "Can you mend it?",
     "The {friend} took some glue and put the pieces together",
     "The cup was not perfect, but now it was special."),
    ("{He} wanted to see the snow on the mountain", "Will you come with me?",
     "They climbed all morning and helped each other over the rocks",
     "At the top they made a snowman."),
    ("{He} forgot what day it was and missed {his} birthday", "Is it too late for a cake?",
     "The {friend} laughed and baked a big cake with cherries", "It was the best birthday of all."),
    ("{He} saw a star fall behind the hill", "Shall we look for the star?",
     "They went over the hill and found a shining stone",
     "They put it in the window, and it glowed all night."),
    ("A cold winter came and {he} had no coat", "Is there a warm place for me?",
     "The {friend} gave {him} a blanket and a seat near the fire",
     "Outside the snow fell, but they were warm."),
    ("{He} wanted to win the race, but {he} was slow", "How can I be faster?",
     "They trained every morning until the sun was high",
     "{Name} came in second and was very happy."),
]
WHEN = [
    "One day", "One morning", "One evening", "One summer day", "One cold morning", "One windy day",
    "One rainy day",
]
LAST = [
    "From that day on, they were friends.", "From that day on, {name} was never alone.",
    "And so they became best friends.", "{Name} never forgot that day.",
    "And they lived happily ever after.", "{Name} learned that it is good to ask for help.",
    "That night {name} fell asleep with a smile.", "Since then they meet every Sunday.",
]

ASK = [
    "Tell me a story about {hero}.", "Tell me a (short|little|nice|small) story about {hero}.",
    "Tell a story about {hero}.",
    "(Please tell|Can you tell|Could you tell) me a (story|short story|tale) about {hero}.",
    "Write a (short |)(story|tale) about {hero}.",
    "Write a (short |)(story|tale) about {hero}, please.", "Write me a story about {hero}.",
    "I want a story about {hero}.", "I would like a (short |)story about {hero}.",
    "Do you know a story about {hero}?", "Make up a story about {hero}.",
    "Invent a (story|tale) about {hero}.", "A (story|short story|tale) about {hero}, please.",
    "Story about {hero}", "My child wants a story about {hero}.",
    "Can you write a story about {hero}?", "Tell my (son|daughter|child) a story about {hero}.",
    "Give me a (short |)story about {hero}.", "Let me hear a story about {hero}.",
    "Can I have a story about {hero}?", "I cannot sleep. Tell me a story about {hero}.",
    "A bedtime story about {hero}, please.", "Tell me a bedtime story about {hero}.",
    "Tell us a story about {hero}.", "Please write a tale about {hero}.",
    "Can you make up a story about {hero}?", "What about a story about {hero}?",
    "Read me a story about {hero}.",
]
OPEN_ASK = [
    "Tell me a story.", "Tell me a (short|little|nice|bedtime) story.", "Write a (short |)story.",
    "(Please tell|Can you tell) me a story.", "Do you know a story?", "I want to hear a story.",
    "A story, please.", "Make up a story.", "Can you write a story?", "Tell me something nice.",
    "I cannot sleep. Tell me a story.", "Write a tale.", "Write me a story, please.",
]


def with_article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def capital(text):
    return text[0].upper() + text[1:]


def story(rng, hero, good, name, place=None, friend=None):
    she = hero in SHE or (hero not in HE and name in NAMES_F)
    trouble, question, mended, result = rng.choice(TROUBLES)
    friend = friend or rng.choice([one for one in HELPERS if one != hero])
    words = {"name": name, "Name": name, "friend": friend, "a_friend": with_article(friend),
             "he": "she" if she else "he", "his": "her" if she else "his",
             "him": "her" if she else "him", "He": "She" if she else "He", "His": "Her" if she else "His"}
    who, place = with_article(f"{good} {hero}"), place or rng.choice(PLACES)
    out = [rng.choice([
        f"Once upon a time, {who} named {name} lived {place}.",
        f"Once there was {who} named {name}. {words['He']} lived {place}.",
        f"{capital(place)} there lived {who} called {name}.", f"{name} was {who} and lived {place}.",
        f"There was once {who} {place}. {words['His']} name was {name}."])]
    if rng.random() < 0.6:
        out.append(f"{rng.choice([name, words['He']])} loved {rng.choice(LOVES)}.")
    first = trouble.format(**words)
    starts = ("He ", "She ", "His ", "Her ", "A ")
    out.append(f"{rng.choice(WHEN)} {first[0].lower() + first[1:] if first.startswith(starts) else first}.")
    meeting = mended.startswith("It was")
    if meeting:
        out.append(f"\"{question}\" asked {name}.")
    else:
        out.append(rng.choice([
            f"Then {with_article(friend)} came along. \"{question}\" asked {name}.",
            f"{words['He']} met {with_article(friend)} and asked, \"{question}\"",
            f"{words['He']} went to a {rng.choice(['wise', 'friendly', 'kind'])} {friend} and asked, "
            f"\"{question}\""]))
        if rng.random() < 0.5:
            spoken = rng.choice(["I have an idea", "Come with me", "Do not worry", "Let me think"])
            out.append(f"\"{spoken},\" said the {friend}.")
    out.append(mended.format(**words) + ".")
    out.append(result.format(**words))
    out.append(rng.choice(LAST).format(**words))
    return " ".join(out)


def conversation(rng):
    hero, good = rng.choice(HEROES), rng.choice(GOOD)
    she = hero in SHE or (hero not in HE and rng.random() < 0.5)
    name = rng.choice(NAMES_F if she else NAMES_M)
    place = friend = None
    frame, asked = rng.choice(ASK), with_article(hero)
    roll = rng.random()
    if roll < 0.12:
        frame, asked = rng.choice(OPEN_ASK), ""
    elif roll < 0.37:
        asked = with_article(f"{good} {hero}")
    elif roll < 0.45:
        asked += rng.choice([" named ", " called "]) + name
    elif roll < 0.55:
        place = rng.choice(PLACES)
        asked += " " + place
    elif roll < 0.65:
        friend = rng.choice([one for one in HELPERS if one != hero])
        asked += " and " + with_article(friend)
    text = vary(rng, frame)
    if roll < 0.45 and roll >= 0.37:  # a name keeps its capital
        question = text.format(hero=asked)
    else:
        question = dress(rng, text.format(hero=asked), asked)
    told = story(rng, hero, good, name, place, friend)
    thought = (f"The user wants a story about {with_article(hero)}. I tell a short one." if asked
               else f"The user wants a story. I tell one about {with_article(hero)}.")
    return one_turn("story", question, told, thought)


def held_out():
    return []  # no one text is the right one
