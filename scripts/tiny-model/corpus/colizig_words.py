"""Facts about colizig: what it is, and what its words mean."""
from .colizig_fact import HOW, IT, WHAT, WHERE, Fact, can

WORDS = [
    Fact("who", "who I am", "I am the small demo model of colizig, a server for large language models at home.", [
        "(Who|What) are you", "(Tell me|Say|Can you tell me|Please say) (who|what) you are",
        "(Introduce|Describe) yourself(| please)", "What is your name", "What's your name", "Do you have a name",
        "Are you (a person|a human|a robot|a machine|a model|an AI|ChatGPT|a program)", "What (kind|sort) of model are you",
        "(Which|What) model (are you|is this|am I talking to|answers me)", "Who (am I talking to|is there|is this|answers me)",
        "What should I call you", "Tell me (about yourself|your name|something about yourself)", "Who is speaking",
        "Your name", "I want to know who you are", "And you, who are you"],
        ["You there, who are you really?", "With which model am I speaking?", "May I ask who you are?"],
        "I say what I am."),
    Fact("what", "what colizig is",
         "Colizig is a daemon in C that runs large mixture-of-experts models on home servers with little RAM.", [
        f"{WHAT} colizig", f"{WHAT} colizigd", "What does (colizig|colizigd) do", "What is colizig (for|good for|about)",
        "What (kind|sort) of (program|software|thing) is (colizig|colizigd)", "Why (use|would I use) colizig",
        "What (can|may) I use colizig for", "Tell me (something about|more about|a bit about|what you know about) colizig",
        "What is the (purpose|point|idea) of colizig", "In (one sentence|short|a few words), what is colizig",
        "I have never heard of colizig, what is it", "What does the (program|project) colizig do"],
        ["Colizig, what is that?", "What should I know about colizig?"]),
    Fact("families", "which models colizig runs", "Colizig runs models of two families, Qwen3-MoE and Qwen4-Exp.", [
        f"(Which|What) (models|model families|families of models|kinds of models|language models) (does {IT} (run|support|serve|know|load)|can {IT} (run|serve|load)|work with {IT}|are supported|can I run|can I use)",
        f"(Name|List|Tell me|Give me) the (models|families|model families) (that {IT} (runs|supports|knows)|of {IT})",
        "(Which|What) (models|families) are (there|supported by colizig|possible)", "Is (Qwen|Qwen3|Qwen4|Llama) supported",
        "How many (families|model families) does colizig (know|support|run)", "Does colizig run (Qwen|Qwen3|Qwen4) models"],
        ["Supported models of colizig: which are they?", "What families of models may I give to colizig?"]),
    Fact("licence", "for the licence", "Colizig is free under the MIT licence.", [
        f"(What|Which) (licence|license) does {IT} (have|use|come with)", f"{WHAT} the (licence|license) of {IT}",
        f"Under (what|which) (licence|license) is {IT}( released| published| given away|)", f"Is {IT} (free|open source|free software)",
        f"May I (use|copy|share|change) {IT}( for free|)", f"Does {IT} cost (money|anything)", f"What does {IT} cost", f"How is {IT} licensed",
        f"{IT} (licence|license)", "Do I have to pay for colizig"],
        ["The licence of colizig, which one is it?", "Is there a licence for colizig?"]),
    Fact("language", "for the language of the code", "Colizig is written in C.", [
        f"(What|Which) (language|programming language) is {IT} (written|made|coded|programmed) in",
        f"In (what|which) (language|programming language) is {IT} (written|made|coded|programmed)",
        f"(What|Which) programming language does {IT} use", f"Is {IT} (written|made|programmed) in (C|Python|Rust|Go|Java)",
        f"{WHAT} the (language of the code|programming language) of {IT}", f"What is the (code|source|source code) of {IT} written in",
        f"What is {IT} written in", "Tell me the programming language of colizig"],
        ["Colizig: written in which programming language?"]),
    Fact("system", "for the operating system", "Colizig runs on Linux.", [
        f"(What|Which) (operating system|system|OS) does {IT} (need|run on|want|use|require)",
        f"On (what|which) (operating system|system|OS|systems) does {IT} (run|work)",
        f"Does {IT} (run|work) on (Linux|Windows|a Mac|macOS|Debian|Ubuntu)", f"Is {IT} for (Linux|Windows|macOS)",
        f"Can I (run|use) {IT} on (Linux|Windows|macOS|Ubuntu|Debian)", f"{WHAT} the operating system for {IT}",
        f"(What|Which) operating systems (are supported|can I use)"],
        ["The operating system for colizig should be which one?"]),
    Fact("authors", "who made colizig", "Colizig is made by the colizig authors.", [
        f"Who (made|wrote|makes|created|built|develops|invented|programmed) {IT}", f"Who is (behind|the author of|the maker of) {IT}",
        f"Who are the (authors|makers|developers|people) of {IT}", f"(By whom|From whom) is {IT}", f"Who owns {IT}",
        f"Tell me who (made|wrote|built) {IT}", f"Which people (made|wrote) {IT}", "Who made you", "Who (built|created|trained) you"],
        ["Colizig was made by whom?"]),
    Fact("expert", "what an expert is", "An expert is a small part of a layer, and each token uses only a few of them.", [
        f"{WHAT} an expert", f"{WHAT} an expert( in a model| in a layer| of a model| in colizig| in such a model)",
        "What are experts( in a model| in a layer| of a model|)", "What does (the word expert|expert) mean",
        "Explain (experts|the experts|the word expert)( to me|)", "What do you mean by (an expert|experts)",
        "When you say expert, what do you mean", "What (kind|sort) of thing is an expert"],
        ["An expert, what is that?", "What would you call an expert?"]),
    Fact("mixture", "what a mixture of experts is",
         "A mixture-of-experts model has many experts in each layer and uses a few of them for each token.", [
        f"{WHAT} a (mixture of experts|mixture-of-experts model|MoE|MoE model)", "What does (MoE|mixture of experts) mean",
        "How does a (mixture of experts|mixture-of-experts model|MoE model) work", "What does MoE stand for",
        "What are (mixture-of-experts models|MoE models)", "Explain (mixture of experts|mixtures of experts|MoE models)( to me|)"],
        ["A mixture of experts: what does that mean?"]),
    Fact("streaming", "how experts come from the SSD",
         "Experts are read from the SSD when a token needs them and are kept in slots in memory.", [
        f"(How|Why) (are|does {IT} stream|do you stream) experts( streamed|) from the (SSD|drive|disk)",
        "How does (streaming|expert streaming|streaming of experts|streaming from the SSD) work",
        f"{WHAT} (expert streaming|streaming of experts|streaming from the SSD)", "What does streaming( experts|) from the (SSD|disk|drive) mean",
        "What is the (SSD|drive|disk) (for|used for|good for)", f"How can {IT} run a model (larger|bigger) than (the RAM|memory|the memory)",
        "How can a large model (run|fit|work) with (little|so little|a small amount of) (RAM|memory)",
        "When are experts read( from the drive| from the SSD|)", "Where do the experts come from", "What is read from the (SSD|drive|disk)",
        f"Why does {IT} (need|use|read from) (an SSD|the SSD|a drive|the drive)"],
        ["The SSD and the experts: how does streaming work here?", "In what way do experts come from the SSD?"]),
    Fact("slot", "what a slot is", "A slot is a place in memory that holds one expert.", [
        f"{WHAT} (a slot|an expert slot)", f"{WHAT} (a slot|an expert slot) (in colizig|in memory|for experts)",
        "What are (slots|expert slots|the slots)( for|)", "What does (slot|a slot|the word slot) mean", "What does a slot hold",
        "What is (in|inside|kept in) a slot", "Explain (slots|the slots|expert slots)( to me|)", "What do you mean by (a slot|slots)"],
        ["A slot, what is that?", "And slots, what would they be?"]),
    Fact("evict", "who leaves a slot", "When all slots are full, the expert that is probably needed last leaves its slot.", [
        "(What happens|What do you do) (when|if) (all|the) slots are full", "Which expert (leaves|is evicted|is thrown out|has to go|goes)( when the slots are full|)",
        "How does eviction( of experts|) work", f"{WHAT} eviction", "When is an expert evicted", "Which expert is (replaced|dropped|removed)( from a slot|)",
        f"How does {IT} (choose|decide|know) which expert (leaves|to evict|to drop|goes)", "Who leaves (a slot|the slots|its slot)( when they are full|)",
        "What is evicted( from the slots|)", "Explain eviction( to me|)"],
        ["With full slots, which expert is evicted?"]),
    Fact("kv", "what the KV cache is",
         "The KV cache holds the keys and values of the tokens so far, so that they need not be computed again.", [
        f"{WHAT} the KV (cache|pool)", f"{WHAT} (a KV cache|KV cache|the cache of keys and values)", "What does (KV|the KV cache|KV cache) mean",
        "What is the KV cache (for|good for|used for)", "What does the KV cache (do|hold|keep|store)", "Why (is there|do you need|does one need|use) a KV cache",
        "What is (in|kept in|stored in) the KV cache", "Explain (the KV cache|KV caches|the KV pool)( to me|)", "What are keys and values( for|)"],
        ["The KV cache, what is that?", "What would one need the KV cache for?"]),
    Fact("token", "what a token is", "A token is a piece of text, such as a word or a part of a word.", [
        f"{WHAT} a token", "What are tokens", "What does (token|a token|the word token) mean", "Explain tokens( to me|)", "What do you mean by (a token|tokens)",
        "Is a token a word", "How (long|large|big) is a token", "What (kind|sort) of thing is a token"],
        ["A token, what is that?"]),
    Fact("daemon", "what a daemon is", "A daemon is a program that runs in the background.", [
        f"{WHAT} a daemon", "What are daemons", "What does (daemon|a daemon|the word daemon) (mean|do)", "Explain daemons( to me|)",
        "What do you mean by (a daemon|daemons)", "Why is it called a daemon", "What (kind|sort) of (program|thing) is a daemon"],
        ["A daemon, what is that?"]),
    Fact("checkpoint", "what a checkpoint is", "A checkpoint is a directory with config.json, tokenizer.json and safetensors files.", [
        f"{WHAT} a checkpoint", "What are checkpoints", "What does (checkpoint|a checkpoint|the word checkpoint) mean", "What is (in|inside|part of) a checkpoint",
        "(Which|What) files (are in|belong to|does one need for) a checkpoint", f"(Which|What) files does {IT} need", "Explain checkpoints( to me|)",
        "What does a checkpoint (consist of|contain|look like)", "(Which|What) files make up a model", "What do you mean by a checkpoint"],
        ["A checkpoint, what is that?"]),
    Fact("gpu", "whether a GPU is used", "No, colizig uses only the CPU.", [
        f"Does {IT} (need|use|want|require|support) a (GPU|graphics card)", f"Do I need a (GPU|graphics card)( for {IT}|)", can("use a (GPU|graphics card)"),
        f"Is a (GPU|graphics card) (needed|required|used|necessary)( for {IT}|)", f"Does {IT} (work|run) (with|on) a (GPU|graphics card)",
        f"Can I (use|run {IT} on) (my|a) (GPU|graphics card)", "Is there GPU support", "What about (GPUs|a GPU|graphics cards)",
        f"Are (GPUs|graphics cards) (used|supported)( by {IT}|)"],
        ["For colizig, must there be a GPU?"]),
    Fact("images", "whether images can be sent", "No, colizig is for text and refuses images.", [
        can("(read|see|look at|understand|take) (images|pictures|photos)"), "Can I send (images|pictures|photos|an image|a picture|a photo)( to colizig|)",
        f"Does {IT} (support|take|know|accept|read) (images|pictures|photos)", "Are (images|pictures|photos) (supported|possible|allowed)", "What about (images|pictures|photos)",
        "Can you (see|read|look at) (images|pictures|photos|an image|a picture|a photo)", "Is there support for (images|pictures)"],
        ["Images sent to colizig, are they read?"]),
    Fact("privacy", "what is logged", "No, colizig never logs prompts or replies.", [
        f"Does {IT} (log|store|save|keep|record) (prompts|my prompts|my messages|my questions|my words|what I say|what I write|replies|conversations)",
        "Are (prompts|my prompts|my messages|my questions|replies|conversations) (logged|saved|stored|recorded|written to the log)",
        "Is (my text|what I say|what I write|my conversation|our conversation) (logged|saved|stored|recorded)",
        "Will my (messages|questions|prompts) be (logged|saved|stored)", "Do my (prompts|messages|questions) (appear|show up) in the log"],
        ["My prompts, are they logged somewhere?", "Would colizig log what I say?"]),
    Fact("internet", "whether the internet is used", "No, colizig connects to nothing, and everything happens on this machine.", [
        f"Does {IT} (need|use|connect to|call|talk to) (the internet|the cloud|the network|other servers)", f"Is {IT} (online|connected to the internet|in the cloud)",
        f"Do I need (the internet|a cloud|an internet connection)( for {IT}|)", f"Does {IT} (send|give) (my data|data|anything|my text) (away|to others|to the cloud|to anybody|over the internet)",
        f"Does {IT} (phone home|have telemetry|look for updates)", "Is there (telemetry|any telemetry)", "Is my data sent (away|to the cloud|to others|over the internet)",
        "Are you (online|connected to the internet|in the cloud)"],
        ["From this machine, is anything sent to the internet?"]),
    Fact("keys", "for API keys", "There are no API keys yet, so colizig listens only on this machine by default.", [
        f"(Does {IT} (need|use|have|want|check)|Do I need|Are there|Is there) (an API key|API keys|a key|a password)", "Where do I (get|find|set) (an API key|API keys|my API key)",
        f"(What|Which) API key (do I need|must I use|should I use|does {IT} want)", f"How do I (make|create|get|set) (an API key|API keys)",
        "What about (API keys|an API key)", "Is an API key (needed|required|necessary)", f"{WHAT} the API key( of {IT}|)"],
        ["API keys: are there any in colizig?"]),
    Fact("tools", "for tool calls", "Yes, colizig supports tool calls as the OpenAI API has them.", [
        f"Does {IT} (support|know|have|do|understand) (tools|tool calls|tool calling|function calls|function calling)", can("(call|use) (tools|functions)"),
        "(Are|Is) (tool calls|tool calling|function calling|function calls) (supported|possible|there)", "Can I (use|send|offer|give you) (tools|tool calls|functions)",
        "What about (tools|tool calls|function calls)", "Is there support for (tools|tool calls|functions)"],
        ["Tool calls with colizig, do they work?"]),
    Fact("size", "how large I am", "I am a tiny model, so I know only a few things.", [
        "How (big|large|small|clever|smart) are you", "Are you (big|large|small|tiny|clever|smart|a big model|a large model|a small model|a tiny model)", "How (much|many things) do you know",
        "Do you know (everything|all things|a lot|much|many things)", "Why do you know so little", "Why are you so (small|tiny|silly)", "What is your size",
        "How many parameters do you have", "Are you as (clever|smart|large|good) as (a large model|other models|ChatGPT)", "Why (is|was) your answer so (short|simple)"],
        ["Is it much that you know?"]),
    Fact("endpoint", "for the path of the chat API", "Chat requests go to /v1/chat/completions, as in the OpenAI API.", [
        f"{WHAT} the (path|endpoint|URL|route) (for chat|of the chat API|for chat requests|for chats|of the OpenAI API|of the API)", "(Which|What) (path|endpoint|URL|route) (do I use|should I use|must I use|is there|is used) for (chat|chats|chat requests|a chat request)",
        f"Where do (chat requests|chats|my requests|requests) go", "Where (do I|must I|should I|can I) send (a chat request|chat requests|my chat|my chat messages|a request)",
        f"(Which|What) (endpoint|path|API|endpoints) does {IT} (have|offer|serve|speak)", "To (which|what) (path|endpoint|URL) do I (send|post) (chats|chat requests|a chat)",
        f"{WHERE} the (chat endpoint|chat API|OpenAI endpoint|endpoint for chat)", f"Does {IT} speak the OpenAI API"],
        ["For a chat request, which endpoint is the right one?", "The path of the chat endpoint, please?"]),
    Fact("sdk", "about the OpenAI SDK", "Yes, the OpenAI SDK works with base_url http://127.0.0.1:8080/v1.", [
        f"Does the (OpenAI SDK|official SDK|OpenAI client|openai package|Python SDK) work( with {IT}|)", "Can I use the (OpenAI SDK|official SDK|OpenAI client|openai package|Python SDK)( with colizig| from Python|)",
        "(Which|What) base_url (do I use|do I need|should I use|must I give|is right)( for the SDK|)", "Is the (OpenAI SDK|official SDK|OpenAI client|openai package) supported",
        "Can I talk to colizig from Python", f"{HOW} use the (OpenAI SDK|openai package|Python SDK)"],
        ["From Python with the OpenAI SDK, would that work?"]),
]
