"""Facts about colizig: where its settings are, and its commands."""
from .colizig_fact import HOW, IT, MEMORY, WHAT, WHERE, Fact, shows

COMMANDS = [

    Fact("budget", "how to set the RAM budget",
         "Set memory.ram in the config file, or start colizigd with --ram, for example --ram "
         "8GiB.",
         asked=[
             f"How is the {MEMORY} (set|changed|limited|chosen)( in colizig|)",
             "(Which|What) setting limits (memory|the memory|RAM)",
             f"What (do I|must I|should I) (write|put|edit) (for|to set|to change) the {MEMORY}",
             f"{HOW} (set|change|limit|choose|configure|give|raise|lower) the {MEMORY}",
             f"{HOW} (set|change|limit|choose) the {MEMORY} of {IT}",
             f"{WHERE} the (setting for the|setting of the) {MEMORY}",
             f"Where (do I|can I) (set|change|limit) the {MEMORY}",
             "(Which|What) (setting|key|option|flag|parameter) (is for|sets|changes|limits) the "
             f"{MEMORY}",
             f"{HOW} tell {IT} how much (RAM|memory) (it may use|it can use|to use)",
             f"{WHAT} (memory.ram|the flag --ram|the setting memory.ram)( for|)",
             f"{HOW} give {IT} (more|less|8 GiB of|4 GiB of) (RAM|memory)",
         ],
         held=[
             "The RAM budget: how is it set?", "With which setting is the memory limited?",
             "What is it that I write to set the RAM budget?",
         ],
         topic="the (RAM budget|memory budget|memory limit|RAM limit)"),
    Fact("config", "where the config is", "The settings are in /etc/colizig/colizigd.yaml.",
         asked=[
             f"In (which|what) (file|place|directory) are the settings( of {IT}|)",
             "The (settings|config|config file), where (is it|are they)",
             f"{WHERE} the (config|config file|configuration|configuration file|settings|"
             f"settings file)( of {IT}|)",
             f"Where (do|does) the (settings|config|config file|configuration) (live|lie)",
             f"Where are the settings( of {IT}| kept| stored|)",
             "(Which|What) file (has|holds|contains) the (settings|config|configuration)( of "
             f"{IT}|)",
             f"{WHAT} the (config file|settings file|configuration file|path of the config)( of "
             f"{IT}|)",
             f"Where (does {IT} keep|do I edit|can I edit|do I change) (the|its|my) (settings|"
             "config|configuration)",
             "(Which|What) file (do I|must I|should I) edit( to change the settings| for "
             "settings|)",
             "Where (is|lies) colizigd.yaml",
         ],
         held=[
             "The config file: in which place does it live?",
             "In what file would I look for the settings?", "Settings of colizig, where are they?",
         ],
         topic="the (config file|settings file|file with the settings)"),
    Fact("port", "for the port", "Colizig listens on 127.0.0.1, port 8080, unless you change it.",
         asked=[
             f"(Which|What) port does {IT} (use|listen on|have|open|serve on)",
             f"(Which|What) (port|address) is (used|the default|it|right)",
             f"On (which|what) (port|address) does {IT} (listen|answer|run|serve)",
             f"{WHAT} the (port|address|default port|port number)( of {IT}|)",
             f"Where does {IT} listen", f"(Which|What) address does {IT} (use|listen on|have)",
             "Is the port 8080",
             f"At (which|what) (address|port) (can I reach|do I find|do I reach) {IT}",
             f"Tell me the (port|address)( of {IT}|)",
         ],
         held=["The port of colizig, which number has it?", "Colizig listens on which port?"],
         topic="the port( number|)( of colizig|)"),
    Fact("listen", "how to change the port",
         "Change http.listen in the config file, or start colizigd with --listen.",
         asked=[
             "How is the (port|address) (changed|set|chosen)",
             "I want (another|a different) (port|address)",
             f"{HOW} (change|set|choose|configure) the (port|address|listen address)( of {IT}|)",
             f"{HOW} make {IT} listen (on another port|on another address|somewhere else|on port "
             "9000)",
             f"{HOW} use (another|a different) (port|address)",
             "(Which|What) (setting|key|flag|option) (changes|sets|is for) the (port|address)",
             "Can I (change|use another|choose the) (port|address|port number)",
             f"{WHAT} (http.listen|the flag --listen|the setting http.listen)( for|)",
         ],
         held=["Another port is what I want, how is it changed?"],
         topic="(another port|changing the port)"),
    Fact("status", "about colizigctl status",
         "The command colizigctl status shows the phase, the processes and the memory they hold.",
         asked=[
             "What (is|things are) shown (by|with|in) colizigctl status",
             "What is there (to see|to learn) (with|by|from) colizigctl status",
             *shows("(colizigctl status|the status command|the command colizigctl status|status)"),
             f"{HOW} (see|check|ask for|get|show) the status( of {IT}|)",
             f"{HOW} (see|check|know) (if|whether) {IT} (runs|is running|is ready|is up)",
             "(Which|What) command shows the (status|phase|processes)",
         ],
         held=["And colizigctl status, what is shown by it?"],
         topic="colizigctl status"),
    Fact("stats", "about colizigctl stats",
         "The command colizigctl stats shows the counters of the engine.",
         asked=[
             "What (is|things are) shown (by|with|in) colizigctl stats",
             "What is there (to see|to learn) (with|by|from) colizigctl stats",
             *shows("(colizigctl stats|the stats command|the command colizigctl stats|stats)"),
             f"{HOW} (see|get|show|read) the (stats|statistics|counters)( of {IT}| of the engine|)",
             "(Which|What) command shows the (stats|counters|statistics|counters of the engine)",
         ],
         held=[
             "And colizigctl stats, what is shown by it?",
             "In colizigctl stats, what is there to see?",
         ],
         topic="colizigctl stats"),
    Fact("watch", "about stats --watch",
         "The command colizigctl stats --watch shows tokens a second, requests and the hit "
         "rate, every second.",
         asked=[
             "What (is|things are) shown (by|with|in) stats --watch",
             "What is there (to see|to learn) (with|by|from) stats --watch",
             *shows("(colizigctl stats --watch|stats --watch|the flag --watch)"),
             f"{HOW} (watch|see) (the stats|the hit rate|tokens a second|the speed|{IT} live|the "
             "daemon at work|how fast it is)",
             "(Which|What) command shows the (hit rate|speed|tokens a second)",
             f"{WHERE} the (hit rate|speed|tokens a second)",
         ],
         held=["And stats --watch, what is shown by it?", "To watch the hit rate, what do I run?"],
         topic="stats --watch"),
    Fact("plan", "about colizigctl plan",
         "The command colizigctl plan shows where the memory would go, line by line, and the "
         "least that works.",
         asked=[
             "What (is|things are) shown (by|with|in) colizigctl plan",
             "What is there (to see|to learn) (with|by|from) colizigctl plan",
             *shows("(colizigctl plan|the plan command|the command colizigctl plan|plan|"
                    "the memory plan)"),
             f"{HOW} (see|know|find out) (where the memory goes|how much memory a model needs|"
             "how much RAM a model needs|what a model would take)",
             "(Which|What) command shows (the memory plan|the plan|where the memory goes|how "
             "much memory a model needs)",
             f"How much (RAM|memory) does (a model|my model|{IT}) need",
             f"{HOW} (see|get|show|print) (the plan|the memory plan|a plan)",
         ],
         held=[
             "And colizigctl plan, what is shown by it?",
             "In colizigctl plan, what is there to see?",
         ],
         topic="colizigctl plan"),
    Fact("experts", "about colizigctl experts",
         "The command colizigctl experts shows how many experts are in memory and which are the "
         "hottest.",
         asked=[
             "What (is|things are) shown (by|with|in) colizigctl experts",
             "What is there (to see|to learn) (with|by|from) colizigctl experts",
             *shows("(colizigctl experts|the experts command|the command colizigctl experts)"),
             f"{HOW} (see|list|show|find) the (hottest experts|hot experts|experts in memory)",
             "(Which|What) command (shows|lists) the (hottest experts|hot experts|experts|"
             "experts in memory)",
             "Which experts are the hottest", "How many experts are in memory",
         ],
         held=["And colizigctl experts, what is shown by it?"],
         topic="colizigctl experts"),
    Fact("requests", "about running requests",
         "The command colizigctl requests shows the requests that wait or run.",
         asked=[
             "What (is|things are) shown (by|with|in) colizigctl requests",
             "What is there (to see|to learn) (with|by|from) colizigctl requests",
             *shows("(colizigctl requests|the requests command|the command colizigctl requests)"),
             f"{HOW} (see|list|show) (the requests|running requests|waiting requests|all "
             "requests|who waits)",
             "(Which|What) command (shows|lists) (the requests|running requests|waiting requests|"
             "all requests)",
             "Which requests (wait|run|are running|are waiting)",
         ],
         held=["And colizigctl requests, what is shown by it?"],
         topic="colizigctl requests"),
    Fact("cancel", "how to cancel a request", "Run colizigctl cancel with the id of the request.",
         asked=[
             "How is a (request|running request) (cancelled|stopped|ended)",
             "A request should be (stopped|ended)",
             f"{HOW} (cancel|stop|end|abort|kill) (a request|one request|a running request|the "
             "request)",
             "(Which|What) command (cancels|stops|ends|aborts) a (request|running request)",
             "Can I (cancel|stop|end|abort) a (request|running request)",
             *shows("(colizigctl cancel|the cancel command)"),
         ],
         held=["A request should be cancelled, how is that done?"],
         topic="(cancelling a request|colizigctl cancel)"),
    Fact("reload", "how to reload the settings",
         "Edit the settings, then run colizigctl reload or systemctl reload colizigd.",
         asked=[
             "How (is|are) the (config|settings|configuration) (reloaded|applied)",
             "I have (edited|changed) the (settings|config), how (is it|are they) applied",
             f"{HOW} (reload|apply|read again|load again|update) the (settings|config|"
             "configuration|config file)",
             f"{HOW} (reload|make a reload of) {IT}",
             "(Which|What) command (reloads|applies) the (settings|config|configuration)",
             "Must I restart( the daemon| it| colizigd|) (after an edit|after a change|when the "
             "settings change|when I change the settings)",
             "I (edited|changed) the (settings|config|config file), what now",
             f"{HOW} (apply|use) (new settings|changed settings|a new config|my changes)",
             *shows("(colizigctl reload|the reload command)"),
             "What do I do after (an edit|a change) of the (settings|config)",
         ],
         held=[
             "After I have edited the config, how is it reloaded?",
             "The settings: how are they reloaded?",
         ],
         topic="(reloading the settings|a reload|reloading the config|colizigctl reload)"),
    Fact("chat", "how to chat in a terminal",
         "Run colizigctl chat to talk to the model in a terminal.",
         asked=[
             "How is a (chat|conversation) (started|begun|opened)( in the terminal|)",
             "Where (would|could) I chat( with the model|)",
             f"{HOW} (chat|talk|speak|write)( to the model| with the model| to you| with you|) "
             "(in|on|from) (a|the|my) terminal",
             f"{HOW} (chat|talk|speak) (with|to) (the model|you|colizig)",
             "(Which|What) command (is for chat|starts a chat|lets me chat|opens a chat)",
             "Can I (chat|talk to the model|talk to you) (in|on|from) (a|the|my) terminal",
             f"{HOW} (start|begin|open|have) a (chat|conversation)( in the terminal|)",
             *shows("(colizigctl chat|the chat command)"),
             "Is there a (chat|client) for the terminal",
         ],
         held=[
             "The terminal: how would I chat there?", "A chat in the terminal, how is it started?",
         ],
         topic="(chat in the terminal|chatting in a terminal|colizigctl chat|a chat in the "
         "terminal)"),
    Fact("drain", "how to stop colizig",
         "Run colizigctl drain, and the daemon ends when running requests have finished.",
         asked=[
             f"How is {IT} (stopped|drained|ended|shut down)", f"{IT} should (stop|end)( now|)",
             f"{HOW} (stop|end|shut down|drain|quit|close|switch off) {IT}",
             "(Which|What) command (stops|ends|drains|shuts down) (the daemon|colizig|colizigd)",
             *shows("(colizigctl drain|the drain command)"),
             "Can I (stop|drain|end|shut down) (the daemon|colizigd) (cleanly|gently|without "
             "cutting requests|safely)",
         ],
         held=["The daemon should end now, how is it drained?"],
         topic="(stopping the daemon|draining the daemon|colizigctl drain)"),
    Fact("budget live", "how to change the budget while it runs",
         "Run colizigctl budget with a size, such as 6GiB, and no restart is needed.",
         asked=[
             f"How is the {MEMORY} changed (while it runs|without a restart|at run time)",
             f"How could the {MEMORY} be (raised|lowered) while {IT} (runs|is running)",
             f"{HOW} (change|set|lower|raise|shrink|grow) the {MEMORY} (while it runs|while {IT} "
             "runs|without a restart|of a running daemon|at run time|now)",
             f"Can I (change|lower|raise|shrink) the {MEMORY} (while it runs|while {IT} runs|"
             "without a restart|at run time)",
             *shows("(colizigctl budget|the budget command)"),
             f"(Which|What) command (changes|sets|lowers) the {MEMORY} (while it runs|without a "
             "restart|at run time)",
         ],
         held=["While it is running, how could the RAM budget be changed?"],
         topic="(changing the budget without a restart|changing the RAM budget while it runs|"
         "colizigctl budget)"),
    Fact("log", "how to change the log level", "Run colizigctl log with a level, such as debug.",
         asked=[
             "How is the log level (set|changed|chosen)",
             f"{HOW} (change|set|raise|lower|choose) the (log level|level of the log)",
             f"{HOW} (see|get|have) (more|debug) (log lines|messages in the log|logs)",
             "(Which|What) command (changes|sets) the log level",
             *shows("(colizigctl log|the log command)"), "Can I change the log level",
             f"{HOW} (switch on|turn on) debug (logs|logging|messages)",
         ],
         held=["The log level: how is it set?"],
         topic="(the log level|colizigctl log)"),
]
