# Strata: builds the MariaDB plugin, runs a private server with it, tests it.
# 'make help' lists the targets. Nothing here touches the system's MariaDB.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

-include target/server/env.mk

CARGO ?= cargo
CXX := g++
OPT ?= -O2 -g

plugin_so := target/plugin/ha_strata.so
# The profile of cargo: 'shipped', or 'plugin-dev' for a build that takes a minute (Cargo.toml).
cargo_profile := shipped
rust_lib = target/$(cargo_profile)/libstrata_mariadb.a
# Names the library that the plugin was linked from, so that going from one profile to the other links anew.
linked := target/plugin/linked
# What the compiler optimizes the plugin with; scripts/profile.sh records it. Under a name that changes with it: cargo looks at
# flags, not at files that they name.
profile := mariadb/plugin.profdata
profile_use := target/profile/$(firstword $(shell cksum $(profile))).profdata
rust_flags = -Cprofile-use=$(CURDIR)/$(profile_use)
# For the recording: more to link.
link_flags :=
map := mariadb/cc/export.map
cc_sources := $(wildcard mariadb/cc/*.cc)
objects := $(patsubst mariadb/cc/%.cc,target/plugin/obj/%.o,$(cc_sources))

# The server's headers as system headers: all of them, or their order changes.
# Their warnings are not ours, ours are.
includes = $(patsubst -I%,-isystem %,$(MARIADB_INCLUDES))
warnings := -Wall -Wextra -Wno-unused-parameter -Wno-invalid-offsetof
cxx_flags = $(MARIADB_CXXFLAGS) $(OPT) $(warnings) $(includes) -Imariadb/cc

# What 'make check-isolation' does at each level.
ISOLATION_SECONDS ?= 300
ISOLATION_KILLS ?= 10
ISOLATION_LEVELS ?= read-committed,repeatable-read,serializable

.PHONY: help setup quick plugin plugin-dev plugin-so uninstall check-symbols run stop restart client test lint monitoring-test \
        unit profile deb deb-test sql-test slice suites baseline check-isolation torture lab bench bench-test clean distclean FORCE

help:
	@echo 'make setup      installs what is needed on Debian 12 or 13 (as root), unpacks headers'
	@echo 'make quick      format, lints, tests of engine and row layer; no server; under three minutes'
	@echo 'make plugin     builds $(plugin_so)'
	@echo 'make plugin-dev builds it quickly and slower to run: no optimization across crates, no recorded profile'
	@echo 'make run        starts a private server with the plugin, runs a short tour'
	@echo 'make stop       stops it; make client opens a client; make restart'
	@echo 'make test       everything that must pass before a change is taken'
	@echo 'make lint       rustfmt, clippy, rustdoc, shellcheck'
	@echo 'make unit       cargo test --workspace'
	@echo 'make sql-test   Strata'"'"'s own SQL tests (mysql-test/suite/strata)'
	@echo 'make slice      a slice of the server'"'"'s engine suites'
	@echo 'make suites     the engine suites in full, against InnoDB: target/suites-report.txt'
	@echo 'make check-isolation  random histories for minutes, with and without kills'
	@echo 'make torture    servers that are ended under load, alone, in pairs and in threes, for an hour or so (as root the first time)'
	@echo 'make lab        the five published experiments in their short form, with InnoDB and RocksDB, in less than an hour on two'
	@echo '                cores; installs Redmine, Ruby, Rails and fio first (as root)'
	@echo 'make bench      the engine against RocksDB, fjall and LMDB: target/bench/results'
	@echo 'make bench-test tests of the comparison itself; the first time builds RocksDB'
	@echo 'make profile    records anew what the plugin is optimized with: mariadb/plugin.profdata'
	@echo 'make monitoring-test  dashboard and alerts with Prometheus and a server under load, five minutes (as root the first time)'
	@echo 'make clean      removes what the build made and the private server'
	@echo 'make deb        the Debian package mariadb-plugin-strata, in target/deb (as root if tools for it are missing)'
	@echo 'make deb-test   installs, upgrades, removes and purges it in a fresh Debian made by debootstrap (as root)'
	@echo 'make uninstall  takes back what setup changed on the machine (as root)'

setup:
	@scripts/setup.sh

# In a make of its own: setup may just have written the server's variables.
plugin: setup
	@$(MAKE) --no-print-directory plugin-so
	@scripts/check-symbols.sh $(plugin_so)

plugin-dev: setup
	@$(MAKE) --no-print-directory cargo_profile=plugin-dev rust_flags= plugin-so
	@scripts/check-symbols.sh $(plugin_so)

plugin-so: $(plugin_so)

$(plugin_so): $(objects) $(rust_lib) $(linked) $(map) $(MARIADB_SERVICES_LIB)
	@[ -n '$(objects)' ] || { echo 'there are no sources in mariadb/cc' >&2; exit 1; }
	$(CXX) -shared -o $@ $(objects) $(rust_lib) $(MARIADB_SERVICES_LIB) \
	  -Wl,--version-script=$(map) -Wl,-z,nodelete -Wl,--gc-sections $(link_flags) $(MARIADB_LIBS)

# cargo knows what is to be done; the file's time tells make whether it did it.
$(rust_lib): $(profile_use) FORCE
	RUSTFLAGS="$$RUSTFLAGS $(rust_flags)" $(CARGO) build --profile $(cargo_profile) -p strata-mariadb

$(linked): FORCE
	@mkdir -p $(@D)
	@echo '$(rust_lib)' | cmp -s - $@ || echo '$(rust_lib)' >$@

$(profile_use): $(profile)
	@mkdir -p $(@D)
	cp $< $@

# A new server version means new headers, hence env.mk.
target/plugin/obj/%.o: mariadb/cc/%.cc target/server/env.mk
	@mkdir -p $(@D)
	$(CXX) $(cxx_flags) -MMD -MP -c $< -o $@

-include $(objects:.o=.d)

check-symbols:
	scripts/check-symbols.sh $(plugin_so)

run: plugin
	@scripts/server.sh start
	@scripts/tour.sh
	@scripts/server.sh status

stop:
	@scripts/server.sh stop

restart: plugin
	@scripts/server.sh restart

client:
	@scripts/server.sh client

test:
	@scripts/test.sh

# Needs cargo and a C compiler, no server and no headers of one.
quick:
	@scripts/test.sh fmt clippy shell core

lint:
	@scripts/test.sh fmt clippy docs shell

unit:
	$(CARGO) test --workspace

profile: plugin
	@scripts/profile.sh

deb:
	@scripts/deb.sh

deb-test: deb
	@scripts/deb-test.sh

sql-test: plugin
	scripts/mtr.sh strata

slice: plugin
	scripts/mtr.sh slice

suites: plugin
	scripts/mtr.sh compare

baseline: setup
	scripts/mtr.sh baseline

check-isolation: plugin
	$(CARGO) build --release -p strata-lab
	target/release/strata-lab isolation --level $(ISOLATION_LEVELS) --seconds $(ISOLATION_SECONDS)
	target/release/strata-lab isolation --level $(ISOLATION_LEVELS) --seconds $(ISOLATION_SECONDS) --kill $(ISOLATION_KILLS)

# The long form of what 'make test' does in seconds. TORTURE: options for each of them, as --seed N.
torture: plugin
	@scripts/setup.sh spider
	$(CARGO) build --release -p strata-lab
	target/release/strata-lab failover --rounds 60 $(TORTURE)
	for shards in 2 4; do for coordinator in own spider; do \
	  target/release/strata-lab spider --shards $$shards --coordinator $$coordinator --rounds 72 $(TORTURE) || exit; \
	done; done
	for shards in 2 4; do \
	  target/release/strata-lab spider-tpcc --shards $$shards --small --warehouses 8 --rounds 2 --seconds 60 $(TORTURE) || exit; \
	done

# Redmine is installed first, with some 125 packages (as root). Ended in between, the same command goes on. LAB: options, see
# 'make lab LAB=--help'.
lab: plugin
	$(CARGO) build --release -p strata-lab
	target/release/strata-lab reproduce tpcc-memory linkbench xa compressible redmine --set-up $(LAB)

# A workspace of its own: nothing else here compiles what it is compared with. BENCH: options, see 'make bench BENCH=--help'.
bench:
	@scripts/setup.sh bench
	cd bench && $(CARGO) build --release
	target/bench/release/strata-bench $(BENCH)

bench-test:
	@scripts/setup.sh bench
	cd bench && $(CARGO) fmt --check && $(CARGO) clippy --release --all-targets -- -D warnings && $(CARGO) test --release

monitoring-test: plugin
	@scripts/monitoring-test.sh

# The unpacked headers stay; they do not change with the checkout.
clean:
	@scripts/server.sh remove
	rm -rf target/plugin target/mtr-root target/mtr-root.lock target/mtr-results
	$(CARGO) clean --profile dev
	$(CARGO) clean --release

distclean: clean
	rm -rf target

uninstall:
	@[ ! -f run/mariadbd.pid ] || scripts/server.sh stop
	@scripts/uninstall.sh

FORCE:
