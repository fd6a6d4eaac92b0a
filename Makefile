# colizig: one Makefile for everything.
#
#   make              colizigd and colizigctl into build/
#   make check        all tests of ordinary speed       make check-san   the same under ASan and UBSan
#   make check-long   minute-long tests, by hand        make tsan        threads and whole daemons under TSan
#   make check-clients  a coding agent edits a file     make tidy floors static checks
#   make bench        benchmarks anyone can repeat
#   make fuzz         fuzz targets for the parsers      make fuzz-coverage   what they reach
#   make install      DESTDIR and PREFIX are honoured   make uninstall   keeps settings and state
#   make deb          a Debian package in build/        make help        this text
#
# Variants build beside each other: SAN=address (ASan + UBSan), SAN=thread.

CC      ?= gcc
PREFIX  ?= /usr/local
B       := build
WERROR  ?=

WARN := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wdouble-promotion \
        -Wstrict-prototypes -Wmissing-prototypes -Wcast-qual -Wwrite-strings -Wvla -Wundef \
        -Wformat=2 -Wimplicit-fallthrough
# Never -ffast-math: it reorders sums and drops the NaN checks.
MATH := -fno-math-errno -fno-trapping-math -ffp-contract=off
OPT  ?= -O2
CFLAGS += -std=gnu17 -g $(OPT) $(MATH) $(WARN) $(WERROR) -D_GNU_SOURCE -fno-strict-aliasing \
          -fstack-protector-strong -Iengine -I.

ifeq ($(SAN),address)
B       := build/san
CFLAGS  += -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
LDFLAGS += -fsanitize=address,undefined
else ifeq ($(SAN),thread)
B       := build/tsan
CFLAGS  += -fsanitize=thread -fno-omit-frame-pointer
LDFLAGS += -fsanitize=thread
else
# What is released: overruns of known buffers end the process, and nothing that the linker filled in
# can be overwritten. (Distributions may have set the first already.)
CFLAGS  += $(if $(filter -O0,$(OPT)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
LDFLAGS += -Wl,-z,relro,-z,now
endif

# Fuzz targets, with clang's fuzzer, with our own driver in its place, or counting lines.
ifeq ($(FUZZER),clang)
CC      := clang
B       := build/fuzz
OPT     := -O1 -gline-tables-only
CFLAGS  += -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
LDFLAGS += -fsanitize=fuzzer,address,undefined
else ifeq ($(FUZZER),own)
B       := build/fuzz-own
OPT     := -O1
CFLAGS  += -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
LDFLAGS += -fsanitize=address,undefined
else ifeq ($(FUZZER),coverage)
CC      := clang
B       := build/fuzz-coverage
OPT     := -O0
CFLAGS  += -fprofile-instr-generate -fcoverage-mapping
LDFLAGS += -fprofile-instr-generate
endif

PKG_ENGINE := jansson libpcre2-8 libutf8proc
PKG_DAEMON := libmicrohttpd yaml-0.1 libsystemd libseccomp
PKG_CTL    := libcurl libedit
# Asked for lazily: the packages may be installed by the very run that needs them.
CFLAGS      += $(shell pkg-config --cflags $(PKG_ENGINE) $(PKG_DAEMON) $(PKG_CTL) 2>/dev/null)
LIBS_ENGINE  = $(shell pkg-config --libs $(PKG_ENGINE)) -lm -pthread
LIBS_DAEMON  = $(shell pkg-config --libs $(PKG_DAEMON)) $(LIBS_ENGINE)
LIBS_CTL     = $(shell pkg-config --libs $(PKG_CTL)) $(LIBS_DAEMON)
# One clear line in place of a compiler's many; goals that compile nothing do without.
ifneq ($(filter-out help clean floors uninstall,$(or $(MAKECMDGOALS),all)),)
ifneq ($(shell pkg-config --exists $(PKG_ENGINE) $(PKG_DAEMON) $(PKG_CTL) 2>/dev/null && echo there),there)
$(error missing libraries: run scripts/packages build)
endif
endif

VERSION := 0.1.0
COMMIT  := $(shell git rev-parse --short=10 HEAD 2>/dev/null || echo unknown)

# One short line a command; V=1 shows them whole.
Q := $(if $(V),,@)
say = $(if $(V),,@echo "  $(1)	$@")

ARCH := $(shell uname -m)
ENGINE_SRC := $(wildcard engine/*/*.c)
ifneq ($(ARCH),x86_64)
ENGINE_SRC := $(filter-out %_avx2.c %_avx512.c,$(ENGINE_SRC))
endif
CTL_SRC    := $(filter-out %/colizigctl.c,$(wildcard daemon/ctl/*.c))
DAEMON_SRC := $(filter-out daemon/ctl/%,$(wildcard daemon/*/*.c))
FAKE_SRC   := $(wildcard tests/fakes/*.c)
UNIT_SRC   := $(wildcard tests/unit/test_*.c)
BENCH_SRC  := $(wildcard tests/bench/bench_*.c)
FUZZ_SRC   := $(wildcard tests/fuzz/fuzz_*.c)

obj = $(patsubst %.c,$(B)/%.o,$(1))
ENGINE_OBJ := $(call obj,$(ENGINE_SRC))
DAEMON_OBJ := $(call obj,$(DAEMON_SRC))
CTL_OBJ    := $(call obj,$(CTL_SRC))
FAKE_OBJ   := $(call obj,$(FAKE_SRC))
REPLAY     := $(B)/tests/bench/replay_experts
UNITS      := $(patsubst %.c,$(B)/%,$(UNIT_SRC))
BENCHES    := $(patsubst %.c,$(B)/%,$(BENCH_SRC))
FUZZERS    := $(patsubst %.c,$(B)/%,$(FUZZ_SRC))

.PHONY: all units units-threaded fakes help check check-san check-long check-clients tsan tidy floors bench install uninstall deb clean models \
        fuzz fuzz-coverage benches
all: $(B)/colizigd $(B)/colizigctl
units: $(UNITS) $(REPLAY) build/tokenizers/qwen3/tokenizer.json build/tokenizers/qwen3.8/tokenizer.json
units-threaded: $(addprefix $(B)/tests/unit/test_,drives expert_store io metrics pool ring row_store)
fakes: $(B)/colizigd-fake
benches: $(BENCHES) $(REPLAY)
ifdef FUZZER
fuzz: $(FUZZERS)
else
# clang's fuzzer where it is, which follows the branches an input takes; else our driver.
fuzz:
	$(MAKE) FUZZER=$$(tests/fuzz/run.py --which) fuzz
endif

help:
	@sed -n '3,12s/^# \{0,1\}//p' Makefile

# Everything in a vector kernel is inlined, and checking each step of that for undefined
# behaviour takes minutes to compile; overruns are what matters there, and those are checked.
$(B)/%_avx2.o: CFLAGS += -mavx2 -mfma -mf16c $(if $(SAN),-fno-sanitize=undefined)
$(B)/%_avx512.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c \
                           $(if $(SAN),-fno-sanitize=undefined)
$(B)/daemon/base/version.o: CFLAGS += -DCZ_VERSION='"$(VERSION)"' -DCZ_COMMIT='"$(COMMIT)"'
$(B)/daemon/base/version.o: $(B)/commit
# Touched only when it changes, so that a new commit rebuilds what names it and nothing else.
$(B)/commit: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION) $(COMMIT)' | cmp -s - $@ || echo '$(VERSION) $(COMMIT)' > $@
FORCE:

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/libcolizig.a: $(ENGINE_OBJ)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^
$(B)/libdaemon.a: $(DAEMON_OBJ)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^

# An archive, so that a unit test of one part of it needs no other part's libraries.
$(B)/libctl.a: $(CTL_OBJ)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^

$(B)/colizigd: $(B)/daemon/main.o $(B)/libdaemon.a $(B)/libcolizig.a
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_DAEMON)
$(B)/colizigctl: $(B)/daemon/ctl/colizigctl.o $(B)/libctl.a $(B)/libdaemon.a $(B)/libcolizig.a
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_CTL)
# The same daemon with a scripted engine behind the front door; see tests/fakes.
$(B)/colizigd-fake: $(B)/daemon/main.o $(FAKE_OBJ) $(B)/libdaemon.a $(B)/libcolizig.a
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_DAEMON)

$(B)/tests/unit/%: $(B)/tests/unit/%.o $(B)/libctl.a $(B)/libdaemon.a $(B)/libcolizig.a
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS_DAEMON)
$(B)/tests/bench/%: $(B)/tests/bench/%.o $(B)/libcolizig.a
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_ENGINE)
# Parsers under mutated input: tests/fuzz/run.py runs them. The engine behind the door is the
# scripted one: checkers in vector kernels take minutes to compile.
FUZZ_PARTS := $(wildcard engine/util/*.c engine/formats/*.c engine/text/*.c) \
    $(addprefix engine/,families/config_keys.c families/quantization.c \
        families/qwen3_moe_config.c families/qwen3_moe_shape.c families/qwen4_exp_config.c \
        families/qwen4_exp_shape.c families/qwen4_exp_tensors.c blocks/ngram.c \
        store/catalog.c store/machine.c run/thinking.c) \
    $(DAEMON_SRC) $(FAKE_SRC) tests/fuzz/small_tokenizer.c
FUZZ_DRIVER := $(if $(filter clang,$(FUZZER)),,$(B)/tests/fuzz/driver.o)
$(B)/libfuzzed.a: $(call obj,$(FUZZ_PARTS))
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^
$(B)/tests/fuzz/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(FUZZ_DRIVER) $(B)/libfuzzed.a
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_DAEMON)
# Objects are kept. (.SECONDARY: would also leave an archive alone whose list of parts has grown.)
.PRECIOUS: $(B)/%.o

# ---- tests ----

VENV := build/venv
$(VENV)/ready: tests/requirements.txt tests/constraints.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile \
	    -r tests/requirements.txt -c tests/constraints.txt
	touch $@

# Kept compressed; tests read it from here.
build/tokenizers/%/tokenizer.json: tests/data/tokenizers/%/tokenizer.json.xz
	@mkdir -p $(@D)
	xz -dc $< > $@.part && mv $@.part $@

# Tiny checkpoints, made from config and seed; the same bytes everywhere.
models: $(VENV)/ready
	$(VENV)/bin/python scripts/make-checkpoint --all-tiny build/models

check:
	$(MAKE) WERROR=-Werror all units fakes floors models fuzz
	$(VENV)/bin/python tests/run.py --build build --fuzz 5

check-san:
	# Without -Werror: `make check` has it, and instrumented code makes gcc see ghosts.
	$(MAKE) SAN=address OPT=-O1 all units fakes models
	$(MAKE) SAN=thread OPT=-O1 fakes units-threaded
	$(VENV)/bin/python tests/run.py --build build/san --san --threads short

FUZZ_SECONDS ?= 60
check-long:
	$(MAKE) WERROR=-Werror all units fakes models fuzz
	$(VENV)/bin/python tests/run.py --build build --long --fuzz $(FUZZ_SECONDS)

AGENTS := build/agents
$(AGENTS)/ready: tests/agents.txt
	python3 -m venv $(AGENTS)
	$(AGENTS)/bin/pip install --quiet --disable-pip-version-check --no-compile -r tests/agents.txt
	touch $@

check-clients: $(AGENTS)/ready
	$(MAKE) all fakes models
	$(AGENTS)/bin/python -m pytest -c tests/pytest.ini --rootdir=. -q -p no:cacheprovider \
	    --timeout=120 -m clients tests/daemon/test_agent.py

# Lines of each target's module that its seeds and a minute of it reach.
fuzz-coverage: fuzz
	$(MAKE) FUZZER=coverage fuzz
	tests/fuzz/run.py --coverage --seconds $(FUZZ_SECONDS)

tsan:
	$(MAKE) SAN=thread OPT=-O1 all units fakes models
	$(VENV)/bin/python tests/run.py --build build/tsan --threads all

floors:
	python3 scripts/check-floors

# The vector kernels are left out: everything is inlined there, which takes clang-tidy for ever.
tidy:
	clang-tidy --quiet $(filter-out %_avx2.c %_avx512.c,$(ENGINE_SRC)) $(DAEMON_SRC) $(CTL_SRC) daemon/ctl/colizigctl.c -- \
		$(filter-out -Werror,$(CFLAGS)) -DCZ_VERSION='"0"' -DCZ_COMMIT='"0"'

bench: all benches
	$(MAKE) models
	python3 tests/bench/run.py --build $(B) $(if $(MODEL),--model $(MODEL))

# Where systemd, sysusers, tmpfiles and man look below PREFIX, for /usr/local and for /usr.
TO    = $(DESTDIR)$(PREFIX)
UNITS_TO = $(TO)/lib/systemd/system
DOC_TO   = $(TO)/share/doc/colizig
SYSTEMD_UNITS := colizigd.service colizigd-http.socket colizigd-admin.socket
MAN_PAGES := $(wildcard docs/*.[1-8])
man_to = $(TO)/share/man/man$(subst .,,$(suffix $(1)))/$(notdir $(1))

# The settings are the administrator's: put there once, never replaced, never removed.
install: all
	install -Dm755 $(B)/colizigd $(TO)/sbin/colizigd
	install -Dm755 $(B)/colizigctl $(TO)/bin/colizigctl
	$(foreach unit,$(SYSTEMD_UNITS),install -Dm644 systemd/$(unit) $(UNITS_TO)/$(unit) &&) \
		sed -i 's|/usr/local/sbin|$(PREFIX)/sbin|' $(UNITS_TO)/colizigd.service
	install -Dm644 systemd/colizigd.sysusers $(TO)/lib/sysusers.d/colizigd.conf
	install -Dm644 systemd/colizigd.tmpfiles $(TO)/lib/tmpfiles.d/colizigd.conf
	$(foreach page,$(MAN_PAGES),install -Dm644 $(page) $(call man_to,$(page)) &&) true
	install -d $(DOC_TO)/examples
	install -m644 README.md LICENSE $(wildcard docs/*.md) $(DOC_TO)
	install -m644 conf/colizigd.yaml $(wildcard systemd/*.conf) $(DOC_TO)/examples
	[ -e $(DESTDIR)/etc/colizig/colizigd.yaml ] || \
		install -Dm644 conf/colizigd.yaml $(DESTDIR)/etc/colizig/colizigd.yaml

uninstall:
	rm -f $(TO)/sbin/colizigd $(TO)/bin/colizigctl $(SYSTEMD_UNITS:%=$(UNITS_TO)/%) \
		$(TO)/lib/sysusers.d/colizigd.conf $(TO)/lib/tmpfiles.d/colizigd.conf \
		$(foreach page,$(MAN_PAGES),$(call man_to,$(page)))
	rm -rf $(DOC_TO)
	@echo "kept: $(DESTDIR)/etc/colizig, and /var/lib/colizig and the user colizig where they are"

# build/colizig_VERSION_ARCH.deb; DEB_REVISION=2 for a second package of one version.
DEB_REVISION ?= 1
deb: all
	scripts/deb/build $(VERSION)-$(DEB_REVISION) $(B)

clean:
	rm -rf build

-include $(shell find $(B) -type f -name '*.d' 2>/dev/null)
