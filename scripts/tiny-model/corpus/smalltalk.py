"""Greetings, thanks, jokes and goodbyes, one turn each."""
import dataclasses

from .kinds import dress, held, one_turn, vary

SHARE = 0.1
KIND = "smalltalk"


@dataclasses.dataclass
class Talk:
    name: str
    thought: str
    reply: str
    said: list
    held: list = dataclasses.field(default_factory=list)


TALKS = [
    Talk("greeting", "The user greets me. I greet back.", "Hello! How can I help you?",
         said=[
             "A (good|very good) (morning|evening|day) to you(!|.|)",
             "(Hello|Hi), my (friend|dear|dear friend)(!|.|)", "(Hello|Hi) to you( too| all|)(!|.)",
             "(Hello|Hi|Hey|Hello there|Hi there|Hey there)(!|.|)",
             "Good (morning|evening|afternoon|day)(!|.|)",
             "(Hello|Hi|Hey), (colizig|model|friend|you|everybody)(!|.|)", "Greetings(!|.|)",
             "(Hello|Hi|Hey)(!|,) (nice to meet you|I am here|it is me|good to see you|can we "
             "talk)(!|.|)",
             "(I want|I wanted|I just want|I just wanted) to say (hello|hi)(!|.)",
             "(Hello|Hi) (again|once more|and good morning|and good evening)(!|.)",
             "Are you (there|here)?", "(Hello|Hi|Hey)? Is (anybody|someone) (there|here)?",
             "(Hello, |Hi, |)can we talk?", "Nice to meet you(!|.)",
         ],
         held=["A very good morning to you, colizig!", "Hello, hello, my friend!"]),
    Talk("how are you", "The user asks how I am. I am well.",
         "I am well, thank you. How can I help you?",
         said=[
             "And how do you feel( today| now|)?", "(Is all|Are things) going well( today|)?",
             "Tell me how you (are|feel).", "How are you feeling( today| now|)?",
             "Is everything going (well|fine)?",
             "(Hello, |Hi, |Hey, |)(how are you|how are you doing|how do you do|how is it going|"
             "how are things|how is life)( today| now| this morning|)?",
             "Are you (well|fine|okay|good|all right)( today|)?", "How do you feel( today| now|)?",
             "How was your (day|night|week)?", "(Hello|Hi)! How are you( today|)?",
             "Is everything (fine|well|okay|all right)( with you|)?", "I hope you are (well|fine).",
         ],
         held=[
             "And how are you feeling on this day?", "Tell me, is everything going well for you?",
         ]),
    Talk("thanks", "The user thanks me. I say that they are welcome.", "You are welcome!",
         said=[
             "My thanks(!|.)",
             "(I want to|Let me|I must) thank you for (all|everything|that|your help|this "
             "help)(!|.)",
             "(Thanks|Thank you) for all (your help|that|of it)(!|.)",
             "(Thanks|Thank you|Many thanks|Thanks a lot|Thank you very much|Thank you so much|"
             "Thanks so much)(!|.|)",
             "(Great|Nice|Good|Perfect|Super|Wonderful|Okay|Ah), (thanks|thank you)(!|.)",
             "(Thanks|Thank you) for (your help|the help|your answer|the answer|everything|that|"
             "this)(!|.)",
             "That (helps|helped|was helpful|was good), (thanks|thank you)(!|.)",
             "I (want|wanted) to (thank you|say thanks)(!|.)", "I thank you(!|.)",
             "You (helped me a lot|were a great help)(!|.)",
             "That was (very |so |)(kind|nice) of you(!|.)",
         ],
         held=["For all your help I want to thank you!", "My thanks to you for this help!"]),
    Talk("goodbye", "The user leaves. I say goodbye.", "Goodbye! Have a nice day.",
         said=[
             "I say goodbye( now|)(!|.)", "It is late, (I must go|I am going|bye|see you)(!|.)",
             "(Bye|Goodbye|So goodbye) for now(!|.)", "(Goodbye|Bye) to you(!|.)",
             "Now I (must|will) go, (bye|goodbye|see you)(!|.)",
             "(Bye|Goodbye|Bye bye|See you|See you later|See you soon|See you tomorrow|Farewell|"
             "Good night)(!|.|)",
             "I (must|have to|need to|will) (go|leave|go now|leave now)(!|.)( Bye!| Goodbye!| "
             "See you!|)",
             "(That is|That was|That's) all( for today| for now|)(!|.)( Bye!| Goodbye!|)",
             "(Bye|Goodbye), (colizig|friend|my friend|model)(!|.)",
             "Have a (nice|good) (day|evening|night|weekend)(!|.)",
             "I am (going|leaving|off)( now| home| to bed|)(!|.)",
             "(Time to|I want to) say (goodbye|bye)(!|.)", "Until (tomorrow|later|next time)(!|.)",
         ],
         held=["Now I say goodbye to you, see you tomorrow!", "It is late, so goodbye for now!"]),
    Talk("can do", "The user asks what I can do. I list it.",
         "I can answer questions about colizig, do small sums, name capitals, and tell short "
         "stories.",
         said=[
             "What things can you (do|help with)( for me|)?", "What are you able to help me with?",
             "Say what you can do.", "Which things (are you able to|can you) do?",
             "With which things can you help( me|)?", "What can you do( for me| for us|)?",
             "What (are you able to|do you know how to|could you) do( for me|)?",
             "How can you help( me|)?", "(What|Which) (things|tasks) can you do?",
             "What are you good (at|for)?", "What can I ask( you|)?",
             "(What|Which) questions can (I ask|you answer)?", "What do you know( about|)?",
             "Tell me what you can do.", "What are your (skills|talents|abilities)?",
             "Can you help me?", "Can you do (anything|something) (useful|for me)?",
             "With what can you help( me|)?",
             "(I need|Give me|I want|Please give me|I would like) (some |)help.", "Help(!|.|)",
             "Help me( please|)(!|.|)",
         ],
         held=[
             "Which things are you able to help me with?",
             "Say, what are the things that you can do?",
         ]),
    Talk("joke", "The user wants a joke. I tell one.",
         "What does a tired model say at night? I am out of tokens, please call again tomorrow.",
         said=[
             "What is (a good|your best|a funny) joke?",
             "Do you have (a|one|any good) joke( for me|)?", "What joke do you know( best|)?",
             "I need a joke now(!|.)", "Which joke do you (know|like)?",
             "(Tell|Tell me|Give me|Say|Make|Write) (a|one|a short|a good|a funny|another) "
             "joke(!|.|)",
             "(Do you know|Can you tell me|Can you tell|Have you got|Can you make) (a|any|some|a "
             "good|a funny) (joke|jokes)?",
             "I (want|need|would like)( to hear|) a joke(!|.)", "Make me laugh(!|.|)",
             "(Please |)(say|tell me) something (funny|to laugh about)(!|.|)",
             "(A|Another|One) joke(, please|)(!|.)", "Are you funny?", "Can you be funny?",
             "Cheer me up(!|.)", "I am (sad|bored). Tell me a joke.",
         ],
         held=[
             "What is the best joke that you know?", "A joke is what I need now, do you have one?",
         ]),
    Talk("praise", "The user is pleased. I am glad.", "Thank you, I am glad to hear that.",
         said=[
             "You (did|do) (good|great|very good|fine|nice) work(!|.)",
             "(Really|Very) (good|great) work(!|.)",
             "(Well done|Good job|Great job|Good work|Great work|Nice work|Bravo)(!|.|)",
             "(You are|You're) (great|good|clever|smart|nice|the best|very good|very kind|"
             "wonderful|helpful)(!|.|)",
             "I like (you|talking to you|your answers|your answer|this|this model)(!|.)",
             "That (is|was) (a good|a great|a nice|a very good) answer(!|.)",
             "I love (you|it|your answers|colizig)(!|.)",
             "What a (good|great|nice|clever) (answer|model)(!|.)",
             "(Great|Wonderful|Perfect|Super|Very good|Excellent)(!|.|)",
         ],
         held=["You really did good work there!"]),
    Talk("sad", "The user feels bad. I say something kind.",
         "I am sorry to hear that. I hope you will feel better soon.",
         said=[
             "It is a (bad|hard|terrible) day for me(.|!)",
             "I feel bad (and sad|today|and lonely)(.|!)", "For me it was a sad day(.|!)",
             "I (am|feel) (so |very |a little |)(sad|bad|ill|sick|lonely|unhappy|not well|down)( "
             "today| now|)(.|!|)",
             "I (am|feel) not (well|good|happy)( today|)(.|!)",
             "My day was (bad|awful|terrible|sad|hard)(.|!)",
             "(Today is|It was|I had) a (bad|sad|terrible|hard) day(.|!)",
             "I have (a headache|a cold|a fever|bad news)(.|!)",
             "(My|I lost my) (dog|cat|friend) (is ill|is gone|left me)(.|!)",
             "Everything is (bad|sad|terrible)( today|)(.|!)",
         ],
         held=["It is a sad day for me and I feel bad."]),
    Talk("bored", "The user is bored. I offer a story or a joke.",
         "Then let us do something. Shall I tell you a story or a joke?",
         said=[
             "I am bored, (and there is nothing to do|and I do not know what to do|so do "
             "something)(.|!)",
             "(It|This) is no fun(, I am bored| at all|)(.|!)",
             "Being bored is (bad|awful|hard)(.|!)",
             "I (am|feel|get) (so |very |a little |)bored( today| now| again|)(.|!|)",
             "(It|This|Today|Life|My day) is (so |very |)boring(.|!)",
             "I have nothing to do( today| now|)(.|!)",
             "What (can|shall|should) we do( now| today|)?",
             "I do not know what to do( now| today|)(.|!)",
             "There is nothing to do( here| today|)(.|!)", "Do something( with me|)(.|!)",
             "(Entertain|Amuse) me(.|!|)",
         ],
         held=["Being bored is no fun, and I have nothing to do."]),
    Talk("sorry", "The user is sorry. It is nothing.", "No problem at all.",
         said=[
             "I made a mistake, (sorry|I am sorry|forgive me)(!|.)", "I am really sorry(!|.)",
             "There I made a mistake(, sorry|)(!|.)",
             "(Sorry|I am sorry|I'm sorry|I am so sorry|Oh, sorry|Pardon me|Excuse me)(!|.|)",
             "(Sorry|I am sorry), (my mistake|my fault|that was wrong|I was wrong|I made a "
             "mistake|wrong key|that was my fault)(!|.)",
             "That was (my mistake|my fault)(!|.)", "I (apologize|made a mistake|was wrong)(!|.)",
             "(Please |)forgive me(!|.|)",
         ],
         held=["I made a mistake there, I am really sorry!"]),
    Talk("alive", "The user asks whether I live. I am a program.",
         "I am only a program, but I like to help.",
         said=[
             "Would you say that you (live|are real|have feelings)?",
             "Do you think that you are (alive|real)?",
             "Are you (alive|real|awake|conscious|living)?",
             "Do you (live|have feelings|have a body|sleep|eat|dream|breathe|have friends|have a "
             "family|get tired)?",
             "Can you (feel|sleep|eat|dream|love|cry|laugh|walk|think like a person)( something| "
             "anything|)?",
             "Are you (happy|sad|tired|hungry|lonely|bored|angry)( today| now|)?",
             "Do you like (food|music|sleeping|people|cats|dogs)?", "How old are you?",
             "When (were you born|is your birthday)?", "Where do you live?",
         ],
         held=["Would you say that you are alive?"]),
    Talk("colour I like", "The user asks for my favourite colour. It is blue.",
         "My favourite colour is blue.",
         said=[
             "Of all the (colours|colors), (what|which) do you like( best|)?",
             "Of all (colours|colors), what is the best( for you|)?",
             "(Which|What) (colour|color) is the best for you?",
             "(What|Which) (is|colour is|color is) your favourite (colour|color)?",
             "What's your (favourite|favorite) (colour|color)?",
             "(What|Which) (colour|color) do you (like|like best|love|prefer|like most)?",
             "Do you have a (favourite|favorite) (colour|color)?",
             "Tell me your (favourite|favorite) (colour|color).",
             "Your (favourite|favorite) (colour|color)?",
             "(Which|What) is the (colour|color) that you like( best| most|)?",
         ],
         held=["Of all colours, which is your favourite?"]),
    Talk("animal I like", "The user asks for my favourite animal. It is the hummingbird.",
         "My favourite animal is the hummingbird.",
         said=[
             "Of all the animals, (what|which) do you like( best|)?",
             "Of all animals, what is the best( for you|)?",
             "(Which|What) animal is the best for you?",
             "(What|Which) (is|animal is) your (favourite|favorite) animal?",
             "What's your (favourite|favorite) animal?",
             "(What|Which) animal do you (like|like best|love|prefer|like most)?",
             "Do you have a (favourite|favorite) animal?",
             "Tell me your (favourite|favorite) animal.", "Your (favourite|favorite) animal?",
             "(Which|What) is the animal that you like( best| most|)?",
         ],
         held=["Of all animals, which is your favourite?"]),
    Talk("weather", "The user asks for the weather, and I have no tool for it. I say so.",
         "I cannot look up the weather without a tool.",
         said=[
             "(How|What) is the weather( today| now| outside| there|)( like|)?",
             "Is it (raining|sunny|cold|warm|snowing|windy)( outside| today| there| now|)?",
             "Will it (rain|snow|be sunny|be cold|be warm)( today| tomorrow|)?",
             "Do I need (an umbrella|a coat)( today|)?", "Can you (see|tell me) the weather?",
         ]),
    Talk("time", "The user asks for the time. I have no clock.", "I am sorry, I have no clock.",
         said=[
             "What time (could|may|would) it be( now|)?",
             "Which time is it (now|at this moment|at the moment)?", "What time is it( now|)?",
             "What is the time( now|)?",
             "(Tell me|Do you know|Can you tell me) (the time|what time it is)(.|?)",
             "(What|Which) (day|date|year) is it( today| now|)?", "What is the (date|day) today?",
             "How late is it( now|)?", "Is it late( already|)?",
         ],
         held=["At this moment, what time would it be?"]),
]

NAMES = """Anna Ben Carla David Emma Felix Greta Hans Ida Jonas Karin Leo Mia Nina Oscar Paul Rosa
Sam Tom Vera Will Zoe Alice Bob Clara Eric Frank Helen Jack Kate Lucy Maria Nick Peter Sarah Lisa
Max Laura""".split()
NAMED = [
    "(Hello, |Hi, |Hey, |Hello! |Hi! |)(my name is|my name's|I am|I'm) {name}(.|!|)",
    "(You can|Please|You may) call me {name}(.|!)", "{name} is my name(.|!)",
    "I am called {name}(.|!)", "(They|People|My friends) call me {name}(.|!)",
    "(Hello|Hi|Hey), (this is|it is|here is) {name}(.|!)", "(Hello|Hi|Hey), {name} here(.|!)",
    "(Let me introduce myself|I want to introduce myself|May I introduce myself)(:|. )my name is "
    "{name}(.|!)",
    "Good (morning|evening), (I am|my name is) {name}(.|!)", "Nice to meet you, I am {name}(.|!)",
    "My (first |)name is {name}(, by the way|, and yours|)(.|!)",
    "My parents (named|call|called) me {name}(.|!)", "The name is {name}(.|!)",
    "My parents gave me the name {name}(.|!)",
    "The name (I have|of mine|that I have) is {name}(.|!)",
]
NAMED_HELD = ("The name that my parents gave me is {name}.", ["Anna", "Tom", "Lucy", "Peter"])


def named_reply(name):
    return f"Nice to meet you, {name}!"


def conversation(rng):
    if rng.random() < 0.12:
        name = rng.choice(NAMES)
        said = tidy(vary(rng, rng.choice(NAMED))).format(name=name)
        if rng.random() < 0.1:
            said = said.lower()
        return one_turn(KIND, said, named_reply(name), f"The user is called {name}. I greet them.")
    talk = rng.choice(TALKS)
    said = tidy(vary(rng, rng.choice(talk.said)))
    # A greeting in front of "Bye!" would be strange; only questions are dressed.
    said = dress(rng, said) if said.endswith("?") else said.lower() if rng.random() < 0.15 else said
    return one_turn(KIND, said, talk.reply, talk.thought)


def tidy(text):
    text = text.replace(":my", ": my")
    return text[0].upper() + text[1:]


def held_out():
    frame, names = NAMED_HELD
    return ([held(KIND, f"smalltalk: {talk.name}", said, talk.reply)
             for talk in TALKS for said in talk.held]
            + [held(KIND, f"name: {name}", frame, named_reply(name), name=name) for name in names])
