"""What every kind of text is made of: conversations, phrases that vary, and held-out questions.

A pattern is a sentence with choices in round brackets, "(What|Which city) is the capital", which
may be nested and empty; `vary` makes one choice for each. Slots are written as str.format writes
them, "the capital of {country}". What people add around a question (a greeting, a slip of the
keyboard, no question mark) is put on by `dress`, so that a frame is written once."""
import dataclasses
import re


@dataclasses.dataclass
class Conversation:
    """Messages in OpenAI's form. The last is the assistant's reply that is learnt."""
    kind: str
    messages: list
    thought: str             # one or two short sentences of reasoning that lead to the reply
    tools: list | None = None


def one_turn(kind, question, reply, thought):
    return Conversation(kind, [{"role": "user", "content": question},
                               {"role": "assistant", "content": reply}], thought)


def vary(rng, pattern):
    """The pattern with one choice made for every pair of brackets, the innermost first."""
    while True:
        group = re.search(r"\(([^()]*)\)", pattern)
        if group is None:
            return pattern
        choice = rng.choice(group[1].split("|"))
        pattern = pattern[:group.start()] + choice + pattern[group.end():]


BEFORE = [
    "Hello! ", "Hello. ", "Hello, ", "Hi! ", "Hi, ", "Hi there! ", "Hey, ", "Good morning! ",
    "Good evening. ", "Excuse me, ", "Sorry, ", "Please, ", "Okay, ", "Well, ", "So, ", "Now, ",
    "And ", "Quick question: ", "One question: ", "I have a question. ", "Another question: ",
    "Please help me: ", "Can you help me? ", "I was wondering: ", "Just curious: ",
    "Answer me this: ", "Something else: ", "Tell me, ", "Say, ",
]
AFTER = [" Thanks!", " Thank you.", " Thanks.", " Please.", " Please tell me.", " I forgot.",
         " I would like to know.", " Thank you!", " I am curious.", " Do you know?"]


def lower_first(text, keep):
    """The sentence as it goes on after a comma. "I", "KV" and names in keep stay as they are."""
    word = re.match(r"\w+", text)
    name = word is None or word[0] in re.findall(r"\w+", keep)
    if name or word[0] == "I" or not word[0][1:].islower():
        return text
    return text[0].lower() + text[1:]


def slip(rng, text, keep):
    """One small slip of the keyboard, never in a word of keep: that is what the answer hangs on."""
    kept = set(re.findall(r"\w+", keep.lower()))
    words = [m for m in re.finditer(r"\b[a-z]{5,}\b", text) if m[0] not in kept]
    if not words:
        return text
    word = rng.choice(words)
    at = rng.randrange(1, len(word[0]) - 1)
    letters = word[0]
    if rng.random() < 0.5:
        letters = letters[:at] + letters[at + 1] + letters[at] + letters[at + 2:]
    else:
        letters = letters[:at] + letters[at + 1:]
    return text[:word.start()] + letters + text[word.end():]


def dress(rng, text, keep=""):
    """The question as one of many people would type it. keep: words that no slip may touch."""
    if rng.random() < 0.04:
        text = slip(rng, text, keep)
    if rng.random() < 0.3:
        before = rng.choice(BEFORE)
        text = before + (lower_first(text, keep) if before.endswith((", ", "And ")) else text)
    after = rng.choice(AFTER) if rng.random() < 0.1 else ""
    end = text[-1]
    if end in "?.!" and not after:
        roll = rng.random()
        if roll < 0.15:
            text = text[:-1]
        elif roll < 0.18:
            text = text[:-1] + " " + end
        elif roll < 0.21:
            text += end
    text += after
    roll = rng.random()
    if roll < 0.12:
        text = text.lower()
    elif roll < 0.13:
        text = text.upper()
    return text


def normal(text):
    """A text without case and punctuation; signs of sums are words of their own."""
    text = text.lower().replace("\u2019", "'").replace("'", "")
    text = re.sub(r"[+*=]|(?<=\d)\s*-\s*(?=\d)", lambda sign: f" {sign[0].strip()} ", text)
    return " ".join(re.findall(r"\w+|[-+*=](?= )", text))


def frame_regex(frame):
    """What finds a held-out frame within a normalised text, whatever fills its slots."""
    parts = re.split(r"\{\w+\}", frame)
    literal = [re.escape(normal(part)) for part in parts]
    slot = r"\S+(?: \S+){0,3}"
    pattern = literal[0]
    for part in literal[1:]:
        pattern += (" " if pattern else "") + slot + (" " if part else "") + part
    return re.compile(r"(?:^|(?<= ))" + pattern + r"(?= |$)")


class Frames:
    """Looks for any of the held-out questions in a text, fast enough for hundreds of thousands."""

    def __init__(self, questions):
        self.frames = []
        for frame in sorted({question["frame"] for question in questions}):
            longest = max((normal(part) for part in re.split(r"\{\w+\}", frame)), key=len)
            self.frames.append((longest, frame_regex(frame), frame))
        self.texts = {normal(question["messages"][-1]["content"]) for question in questions}

    def find(self, text):
        """The frame, or the question itself, that the text is made by; None if it is neither."""
        text = normal(text)
        if text in self.texts:
            return text
        for longest, regex, frame in self.frames:
            if longest in text and regex.search(text):
                return frame
        return None


def held(kind, fact, frame, *accept, tools=None, call=None, before=(), **slots):
    """A held-out question: the frame filled in, after the messages of before.

    fact names what is asked for, so that facts can be counted whatever the frame. The whole reply
    must be one of accept, or the call {"name", "arguments"}."""
    out = {"kind": kind, "fact": fact, "frame": frame,
           "messages": [*before, {"role": "user", "content": frame.format(**slots)}]}
    if tools is not None:
        out["tools"] = tools
    if call is not None:
        out["call"] = call
    else:
        out["accept"] = list(accept)
    return out
