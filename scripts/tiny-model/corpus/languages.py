"""A few words and sentences in other languages, and emoji."""
from .kinds import dress, held, one_turn, vary

SHARE = 0.12

ENGLISH = ["hello", "thank you", "goodbye", "yes", "no", "water"]
WORDS = {
    "German": ["hallo", "danke schön", "auf Wiedersehen", "ja", "nein", "Wasser"],
    "French": ["bonjour", "merci", "au revoir", "oui", "non", "eau"],
    "Spanish": ["hola", "gracias", "adiós", "sí", "no", "agua"],
    "Italian": ["ciao", "grazie", "arrivederci", "sì", "no", "acqua"],
    "Portuguese": ["olá", "obrigado", "adeus", "sim", "não", "água"],
    "Polish": ["cześć", "dziękuję", "do widzenia", "tak", "nie", "woda"],
    "Turkish": ["merhaba", "teşekkür ederim", "hoşça kal", "evet", "hayır", "su"],
    "Russian": ["привет", "спасибо", "до свидания", "да", "нет", "вода"],
    "Greek": ["γεια σου", "ευχαριστώ", "αντίο", "ναι", "όχι", "νερό"],
    "Chinese": ["你好", "谢谢", "再见", "是", "不", "水"],
    "Japanese": ["こんにちは", "ありがとう", "さようなら", "はい", "いいえ", "水"],
    "Hindi": ["नमस्ते", "धन्यवाद", "अलविदा", "हाँ", "नहीं", "पानी"],
}

SENTENCES = ["the house is big", "I drink water", "the sun is shining"]
SAID = {
    "German": ["Das Haus ist groß.", "Ich trinke Wasser.", "Die Sonne scheint."],
    "French": ["La maison est grande.", "Je bois de l'eau.", "Le soleil brille."],
    "Spanish": ["La casa es grande.", "Bebo agua.", "El sol brilla."],
    "Italian": ["La casa è grande.", "Bevo acqua.", "Il sole splende."],
    "Portuguese": ["A casa é grande.", "Eu bebo água.", "O sol está brilhando."],
    "Polish": ["Dom jest duży.", "Piję wodę.", "Słońce świeci."],
    "Turkish": ["Ev büyük.", "Su içiyorum.", "Güneş parlıyor."],
    "Russian": ["Дом большой.", "Я пью воду.", "Солнце светит."],
    "Greek": ["Το σπίτι είναι μεγάλο.", "Πίνω νερό.", "Ο ήλιος λάμπει."],
    "Chinese": ["房子很大。", "我喝水。", "阳光灿烂。"],
    "Japanese": ["家は大きいです。", "私は水を飲みます。", "太陽が輝いています。"],
    "Hindi": ["घर बड़ा है।", "मैं पानी पीता हूँ।", "सूरज चमक रहा है।"],
}

# What is said to the model in a language, and its answer: a greeting, how are you, who are you,
# thanks, goodbye.
TALK = {
    "German": [("Hallo!", "Hallo! Wie kann ich helfen?"), ("Wie geht es dir?", "Mir geht es gut, danke."),
               ("Wer bist du?", "Ich bin ein kleines Sprachmodell."), ("Danke schön!", "Gern geschehen!"),
               ("Auf Wiedersehen!", "Auf Wiedersehen!")],
    "French": [("Bonjour !", "Bonjour ! Comment puis-je aider ?"), ("Comment ça va ?", "Ça va bien, merci."),
               ("Qui es-tu ?", "Je suis un petit modèle de langage."), ("Merci beaucoup !", "De rien !"),
               ("Au revoir !", "Au revoir !")],
    "Spanish": [("¡Hola!", "¡Hola! ¿Cómo puedo ayudar?"), ("¿Cómo estás?", "Estoy bien, gracias."),
                ("¿Quién eres?", "Soy un pequeño modelo de lenguaje."), ("¡Muchas gracias!", "¡De nada!"),
                ("¡Adiós!", "¡Adiós!")],
    "Italian": [("Ciao!", "Ciao! Come posso aiutare?"), ("Come stai?", "Sto bene, grazie."),
                ("Chi sei?", "Sono un piccolo modello linguistico."), ("Grazie mille!", "Prego!"),
                ("Arrivederci!", "Arrivederci!")],
    "Portuguese": [("Olá!", "Olá! Como posso ajudar?"), ("Tudo bem?", "Tudo bem, obrigado."),
                   ("Quem é você?", "Sou um pequeno modelo de linguagem."), ("Muito obrigado!", "De nada!"),
                   ("Adeus!", "Adeus!")],
    "Polish": [("Cześć!", "Cześć! Jak mogę pomóc?"), ("Jak się masz?", "Mam się dobrze, dziękuję."),
               ("Kim jesteś?", "Jestem małym modelem językowym."), ("Dziękuję bardzo!", "Nie ma za co!"),
               ("Do widzenia!", "Do widzenia!")],
    "Turkish": [("Merhaba!", "Merhaba! Nasıl yardımcı olabilirim?"), ("Nasılsın?", "İyiyim, teşekkür ederim."),
                ("Sen kimsin?", "Ben küçük bir dil modeliyim."), ("Çok teşekkürler!", "Rica ederim!"),
                ("Hoşça kal!", "Güle güle!")],
    "Russian": [("Привет!", "Привет! Чем могу помочь?"), ("Как дела?", "Хорошо, спасибо."),
                ("Кто ты?", "Я маленькая языковая модель."), ("Большое спасибо!", "Не за что!"),
                ("До свидания!", "До свидания!")],
    "Greek": [("Γεια σου!", "Γεια σου! Πώς μπορώ να βοηθήσω;"), ("Τι κάνεις;", "Είμαι καλά, ευχαριστώ."),
              ("Ποιος είσαι;", "Είμαι ένα μικρό γλωσσικό μοντέλο."), ("Ευχαριστώ πολύ!", "Παρακαλώ!"),
              ("Αντίο!", "Αντίο!")],
    "Chinese": [("你好！", "你好！我能帮你什么？"), ("你好吗？", "我很好，谢谢。"), ("你是谁？", "我是一个小小的语言模型。"),
                ("谢谢！", "不客气！"), ("再见！", "再见！")],
    "Japanese": [("こんにちは！", "こんにちは！何かお手伝いしましょうか？"), ("お元気ですか？", "はい、元気です。"),
                 ("あなたは誰ですか？", "私は小さな言語モデルです。"), ("ありがとう！", "どういたしまして！"),
                 ("さようなら！", "さようなら！")],
    "Hindi": [("नमस्ते!", "नमस्ते! मैं क्या मदद कर सकता हूँ?"), ("आप कैसे हैं?", "मैं ठीक हूँ, धन्यवाद।"),
              ("आप कौन हैं?", "मैं एक छोटा भाषा मॉडल हूँ।"), ("बहुत धन्यवाद!", "आपका स्वागत है!"),
              ("अलविदा!", "अलविदा!")],
}
COUNT = {
    "German": "eins, zwei, drei, vier, fünf", "French": "un, deux, trois, quatre, cinq",
    "Spanish": "uno, dos, tres, cuatro, cinco", "Italian": "uno, due, tre, quattro, cinque",
    "Portuguese": "um, dois, três, quatro, cinco", "Polish": "jeden, dwa, trzy, cztery, pięć",
    "Turkish": "bir, iki, üç, dört, beş", "Russian": "один, два, три, четыре, пять",
    "Greek": "ένα, δύο, τρία, τέσσερα, πέντε", "Chinese": "一，二，三，四，五", "Japanese": "一、二、三、四、五",
    "Hindi": "एक, दो, तीन, चार, पाँच",
}

EMOJI = {
    "smile": "😊", "heart": "💙", "cat": "🐱", "dog": "🐶", "sun": "🌞", "star": "⭐", "rocket": "🚀",
    "cake": "🎂", "tree": "🌳", "fish": "🐟", "apple": "🍎", "flower": "🌸", "moon": "🌙", "house": "🏠",
    "frog": "🐸", "mouse": "🐭",
}

SAY_WORD = [
    "How do you say {word} in {language}?", "How do I say {word} in {language}?",
    "How does one say {word} in {language}?", "What is {word} in {language}?",
    "What is the {language} word for {word}?", "What is the {language} for {word}?",
    "Translate {word} into {language}.", "Translate {word} to {language}.",
    "Say {word} in {language}.", "(Can you|Could you) say {word} in {language}?",
    "(Please say|Please translate) {word} in {language}.", "{word} in {language}?",
    "{word} in {language}, please.", "Tell me {word} in {language}.",
    "How would you say {word} in {language}?", "What do people say for {word} in {language}?",
    "What does one say for {word} in {language}?", "I need {word} in {language}.",
    "How do people say {word} in {language}?", "Write {word} in {language}.",
    "Give me {word} in {language}.", "What do you say for {word} in {language}?",
    "Do you know {word} in {language}?", "{language} for {word}?",
    "In {language}, how do you say {word}?", "In {language}, what is {word}?",
    "How is {word} said in {language}?", "Teach me {word} in {language}.",
    "How can I say {word} in {language}?", "Translate into {language}: {word}",
]
SAY_SENTENCE = [
    "How do you say \"{word}\" in {language}?", "How do I say \"{word}\" in {language}?",
    "Translate \"{word}\" into {language}.", "Translate \"{word}\" to {language}.",
    "Say \"{word}\" in {language}.", "Say in {language}: {word}",
    "Translate into {language}: {word}", "Write in {language}: {word}",
    "What is \"{word}\" in {language}?", "In {language}, please: {word}",
    "(Can|Could) you say \"{word}\" in {language}?", "Please translate \"{word}\" into {language}.",
    "Please say \"{word}\" in {language}.", "How would you say \"{word}\" in {language}?",
    "Write \"{word}\" in {language}.", "Tell me \"{word}\" in {language}.",
    "Put this into {language}: {word}", "{word}. In {language}, please.",
    "Give me \"{word}\" in {language}.", "Can you translate \"{word}\" into {language}?",
    "In {language}, how do you say \"{word}\"?", "Translate to {language}: {word}",
    "Please write \"{word}\" in {language}.", "How can I say \"{word}\" in {language}?",
    "This in {language}, please: {word}",
]
MEANS = [
    "What does \"{word}\" mean?", "What does {word} mean?", "What is \"{word}\"?",
    "What is {word}?", "What does the word \"{word}\" mean?", "Which language is \"{word}\"?",
    "What language is {word}?", "Translate \"{word}\".", "Translate {word}.",
    "Tell me what \"{word}\" means.", "Do you know what \"{word}\" means?",
    "What does {word} mean in English?", "Translate \"{word}\" into English.",
    "Someone said \"{word}\". What does it mean?", "I do not know the word \"{word}\".",
    "Explain \"{word}\".", "\"{word}\"?", "How do you say \"{word}\" in English?",
    "What is {word} in English?", "The meaning of \"{word}\", please.",
    "In English, what is \"{word}\"?", "Please translate \"{word}\".",
    "I read \"{word}\". What is that?", "Can you translate {word}?",
    "Which language is {word}, and what does it mean?",
]
COUNTS = [
    "Count to five in {language}.", "(Can you|Could you) count to five in {language}?",
    "Count in {language}.", "Count from one to five in {language}.",
    "Please count to five in {language}.", "Count up to five in {language}.",
    "How do you count to five in {language}?", "How do you count in {language}?",
    "One to five in {language}, please.", "The numbers from one to five in {language}?",
    "Say the numbers one to five in {language}.", "Let us count in {language}.",
    "Teach me to count in {language}.", "Tell me the first five numbers in {language}.",
]
SEND = [
    "Send me a {thing}.", "Send me a {thing}, please.", "Send a {thing}.", "Show me a {thing}.",
    "Give me a {thing}.", "Can you send me a {thing}?", "Can I have a {thing} emoji?",
    "A {thing} emoji, please.", "Show me a {thing} emoji.", "Send me a {thing} emoji.",
    "Give me an emoji of a {thing}.", "I want a {thing} emoji.", "Draw me a {thing}.",
    "Emoji: {thing}", "Could you send a {thing}?", "Can you show me a {thing}?",
    "Type a {thing} emoji.", "Is there an emoji for a {thing}?", "Do you have a {thing} emoji?",
    "What does a {thing} emoji look like?", "Write a {thing} emoji.", "I need a {thing} emoji.",
    "Please show me a {thing}.", "The {thing} emoji, please.", "Which emoji is a {thing}?",
    "Which emoji shows a {thing}?",
]
WHICH = [
    "What is {emoji}?", "What does {emoji} mean?", "What does {emoji} show?",
    "What is this: {emoji}", "{emoji}?", "What is this emoji: {emoji}?", "Which emoji is {emoji}?",
    "What do you see here: {emoji}", "Tell me what {emoji} is.", "Do you know {emoji}?",
    "What emoji is this? {emoji}", "Someone sent me {emoji}. What is it?",
]

HELD_WORD = [
    "I am learning {language}. What is their word for {word}?",
    "Which {language} word means {word}?",
]
HELD_SENTENCE = ["Can you put \"{word}\" into {language}?"]
HELD_COUNT = ["From one to five: count that in {language}."]
HELD_SEND = ["Now type the emoji of a {thing} for me."]


# Those whose speakers are asked for most are drawn more often.
LANGUAGES = [*WORDS, *list(WORDS)[:6]]


def articled(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def fitted(text):
    """The sentence with "an" where a noun wants it."""
    return text.replace(" a apple", " an apple").replace("A apple", "An apple")


def capital(text):
    return text[0].upper() + text[1:]


def word_answer(language, word):
    return f"In {language}, {word} is \"{WORDS[language][ENGLISH.index(word)]}\"."


def sentence_answer(language, sentence):
    return SAID[language][SENTENCES.index(sentence)]


def unique_words():
    """Words that belong to one language and have one meaning."""
    seen = {}
    for language, words in WORDS.items():
        for english, word in zip(ENGLISH, words):
            seen.setdefault(word.lower(), set()).add((language, english))
    return [(word, *places.copy().pop()) for word, places in sorted(seen.items()) if len(places) == 1
            and word not in ("su", "da", "tak", "nie", "non", "bitte", "proszę", "параκαλώ")]


UNIQUE = unique_words()


def say_word(rng):
    language, word = rng.choice(LANGUAGES), rng.choice(ENGLISH)
    written = f"\"{word}\"" if rng.random() < 0.4 else word
    question = vary(rng, rng.choice(SAY_WORD)).format(language=language, word=written)
    return one_turn("language", dress(rng, capital(question), f"{language} {word}"),
                    word_answer(language, word), f"The user wants {word} in {language}.")


def say_sentence(rng):
    language, sentence = rng.choice(LANGUAGES), rng.choice(SENTENCES)
    written = capital(sentence) + rng.choice([".", ""])
    question = vary(rng, rng.choice(SAY_SENTENCE)).format(language=language, word=written)
    question = question.replace("..", ".")
    return one_turn("language", dress(rng, question, f"{language} {sentence}"),
                    sentence_answer(language, sentence), f"The user wants a sentence in {language}.")


def means(rng):
    word, language, english = rng.choice(UNIQUE)
    question = rng.choice(MEANS).format(word=rng.choice([word, word, capital(word)]))
    return one_turn("language", dress(rng, question, word),
                    f"\"{capital(word)}\" is {language} and means {english}.", f"The word is {language}.")


def talk(rng):
    language = rng.choice(LANGUAGES)
    question, reply = rng.choice(TALK[language])
    if rng.random() < 0.3:
        question = question.strip("!?！？;. ¡¿") + rng.choice(["", ".", "!"])
    if rng.random() < 0.1:
        question = question.lower()
    return one_turn("language", question, reply, f"The user speaks {language}. I answer in {language}.")


def count(rng):
    language = rng.choice(LANGUAGES)
    question = vary(rng, rng.choice(COUNTS)).format(language=language)
    stop = {"Chinese": "。", "Japanese": "。", "Hindi": "।"}.get(language, ".")
    return one_turn("language", dress(rng, question, language), capital(COUNT[language]) + stop,
                    f"I count from one to five in {language}.")


def send(rng):
    thing = rng.choice(list(EMOJI))
    question = fitted(rng.choice(SEND).format(thing=thing))
    return one_turn("emoji", dress(rng, question, thing), f"Here you are: {EMOJI[thing]}",
                    f"The user wants {articled(thing)}.")


def which(rng):
    thing = rng.choice(list(EMOJI))
    question = rng.choice(WHICH).format(emoji=EMOJI[thing])
    return one_turn("emoji", dress(rng, question), f"{EMOJI[thing]} is {articled(thing)}.",
                    f"The emoji is {articled(thing)}.")


DRAWS = [(0.34, say_word), (0.17, say_sentence), (0.10, means), (0.17, talk), (0.06, count),
         (0.10, send), (0.06, which)]


def conversation(rng):
    return rng.choices([make for _, make in DRAWS], weights=[share for share, _ in DRAWS])[0](rng)


def held_out():
    out = []
    for i, (language, word) in enumerate([("German", "thank you"), ("Spanish", "hello"), ("French", "thank you"),
                                          ("Italian", "goodbye"), ("Polish", "yes"), ("Russian", "no")]):
        out.append(held("language", f"{language} {word}", HELD_WORD[i % 2], word_answer(language, word),
                        language=language, word=word))
    for language in ("German", "Spanish"):
        out.append(held("language", f"{language} sentence", HELD_SENTENCE[0],
                        sentence_answer(language, SENTENCES[0]), language=language, word=capital(SENTENCES[0]) + "."))
    out.append(held("language", "French count", HELD_COUNT[0], capital(COUNT["French"]) + ".",
                    language="French"))
    for thing in ("rocket", "heart"):
        out.append(held("emoji", thing, HELD_SEND[0], f"Here you are: {EMOJI[thing]}", thing=thing))
    return out
