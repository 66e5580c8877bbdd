# Braid: one verb for each thing a developer does. `make help` lists them.

SEEDS ?= 100
SECONDS ?= 60
UPGRADES ?= 20
POSTGRES = postgres::postgres_commits_before_max_lag_survive_ssd_loss
BASE ?= HEAD^
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
export PREFIX SYSCONFDIR DESTDIR

.PHONY: help test demo build install uninstall deb boot-test upgrade-test static crash fuzz postgres ceph bench bench-check book install-tools screenshot bench-ceph bench-ublk clean

help: ## list these verbs
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

test: ## install what is missing, then format, lints, checks of the source, all tests
	@scripts/install-tools
	@scripts/test

demo: ## build, then show a safe copy and a cache in three minutes; asks before it installs packages
	@scripts/install-tools demo
	@scripts/demo

build: ## the programme, optimised: target/release/braid
	cargo build --release

static: ## the programme without shared libraries, for every Linux of this processor
	@scripts/static

install: ## what `make build` made, with manual and completions, below DESTDIR and PREFIX=/usr/local, as root
	@scripts/install install

uninstall: ## remove what `make install` installed; configurations and volumes stay
	@scripts/install uninstall

deb: ## a Debian package of what `make build` made; needs dpkg-dev
	@scripts/deb

boot-test: ## the package in a virtual machine: installed, rebooted, killed, upgraded, purged; needs mmdebstrap, qemu-system-x86
	@scripts/boot-test

upgrade-test: ## UPGRADES=20 upgrades in a row under clients of ublk, vhost-user and NBD: daemons replaced, then packages in a virtual machine
	@BRAID_UPGRADES=$(UPGRADES) cargo test -p braid --test guest --test whole -- --nocapture guest_that_boots upgrade:: mounted_file_system_outlives
	@UPGRADES=$(UPGRADES) scripts/boot-test upgrades

crash: ## the long campaign of crashes and failing disks, SEEDS=n runs of each kind, counted
	@scripts/crash $(SEEDS)

fuzz: ## hostile bytes for SECONDS=n on each target; with cargo-fuzz where it is installed
	@scripts/fuzz $(SECONDS)

postgres: ## a database that loses its SSD under load, after SECONDS=n of it: what it acknowledged is on the disk
	@BRAID_POSTGRES_SECONDS=$(SECONDS) cargo test -p braid --test whole -- --exact --nocapture $(POSTGRES)

ceph: ## RBD images on a Ceph cluster of four OSDs on this machine: owners killed, suspended and forced out, hung OSDs; part of `make test`
	@scripts/install-tools
	@cargo test -p braid-rbd --test cluster -- --nocapture

bench: ## measurements: reactor, NBD against nbdkit, vhost-user against qemu, FUSE against a library, recording, engine, opening, policies in both worlds
	cargo bench --workspace --benches
	@for bin in bench/src/bin/*.rs; do cargo run --release -p braid-bench --bin $$(basename $$bin .rs) || exit 1; done

bench-check: ## engine and simulator against those of BASE=commit, by turns: fails if 5 % slower, or above an aim
	@scripts/bench-check $(BASE)

bench-ceph: ## Braid over two pools of a Ceph cluster beside RBD alone, by turns; ROUNDS=3 TURN=30 PARTS="zipf nodes"
	@scripts/install-tools
	cargo build --release --bin braid
	@scripts/bench-ceph $(PARTS)

bench-ublk: ## a ublk device beside rublk's loop target, by turns, in the small virtual machine; needs libclang-dev, fio, qemu-system-x86
	@scripts/bench-ublk

book: ## the documents as a book, target/book/index.html; installs mdbook by cargo if it is missing
	@scripts/book

screenshot: ## docs/dashboard.png anew: the dashboard of a volume under load, in three minutes; needs node, chromium, nbdkit, fio
	@scripts/install-tools
	@scripts/screenshot

install-tools: ## install what tests need, as far as this machine allows
	@scripts/install-tools

clean: ## remove what was built
	cargo clean
