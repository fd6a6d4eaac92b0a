"""The form of a fact about colizig, and the openings that its questions share."""
import dataclasses


@dataclasses.dataclass
class Fact:
    name: str
    about: str    # "The user asks ..." of the thought
    reply: str    # the one canonical answer
    asked: list   # patterns of questions, without the sign at the end
    held: list    # whole questions that no pattern makes
    plan: str = "I know this."
    topic: str = ""   # what it is about, as a noun; "" where that could mean something else


# Questions in which nothing but the topic tells what is wanted.
TOPIC = [
    "Tell me (something |more |a little |)about {t}", "I have a question about {t}",
    "(My|The|One) question is about {t}", "About {t}(, please|, what do you know|, tell me|)",
    "{t}(, please|)", "{t}: (tell me|explain|help|I need help|explain that|what do you know)",
    "{t}, (tell me|explain it|how was that|what was that again|what do you know|I need to know)",
    "Explain {t}( to me|)", "(What|How) about {t}",
    "Can you (say|tell me|explain) something about {t}",
    "I (want|need|would like) to (know|learn|hear) (more |something |)about {t}",
    "Help me with {t}", "I (forgot|do not understand|am asking about|wonder about) {t}",
    "What (do you know|can you say|can you tell me) about {t}", "(Now|Next|And|So) {t}",
    "What was it with {t}", "Do you know (something|anything) about {t}",
    "A (word|sentence|line) (on|about) {t}, please", "Let us talk about {t}", "We talk about {t}",
    "With {t} I need help", "For {t}, what (do I need to|must I|should I) know",
    "{t}, what is (it about|to know|to say)", "I read about {t}, what (should|must) I know",
    "My friend asks about {t}", "Someone asked me about {t}",
    "What (should|must) one know about {t}",
]


MEMORY = "(RAM|memory|RAM budget|memory budget|budget|memory limit)"
IT = "(colizig|colizigd|the daemon|this server)"
HOW = ("(How do I|How can I|How to|How would I|How does one|How do you|"
       "Tell me how to|Show me how to|What is the way to|"
       "I want to know how to|Can you tell me how to|Explain how to|"
       "What do I do to|What must I do to|I would like to|Please tell me how to)")
WHAT = ("(What is|What's|Explain what is|Tell me what is|Can you tell me what is|"
        "Do you know what is|What exactly is|Please explain|Explain|Describe|Define|"
        "Tell me about|What do you know about|"
        "Can you explain|What is meant by)")
WHERE = ("(Where is|Where's|Where do I find|Where can I find|Where can I see|Where does one find|"
         "Tell me where to find|In which place is|Which place has|Do you know where to find)")
SHOWS = ("(What does {0} (show|print|tell me|say|do|display)|"
         "What do I see with {0}|What is {0}( for| good for|)|"
         "Tell me what {0} (shows|does|prints)|Explain {0}|What can I (see|learn) (with|from) {0}|"
         "What is the (use|purpose) of {0}|What will {0} (show|tell) me|Describe {0}|"
         "Why (use|run) {0}|"
         "Which things does {0} show|What happens when I run {0})")
CAN = ("(Can {0}|Does {0} know how to|Is {0} able to|Could {0}|Tell me if {0} can|Will {0}|"
       "I wonder if {0} can|"
       "Is it true that {0} can)")


def shows(command):
    return [SHOWS.replace("{0}", command)]


def can(what, who=IT):
    return CAN.replace("{0}", who) + " " + what
