# Commands for developers and CI. `make help` explains each target.

HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# Cargo profile of the programs: `image` for `make up`, `release` for benchmarks, `dev` for tests.
PROFILE ?= image
# Images hold one static program each. Everything is linked statically, so that each crate is built
# once. tools/static.sh sets the same variables for scripts.
export CARGO_BUILD_TARGET := $(HOST)
export CARGO_TARGET_$(shell echo '$(HOST)' | tr 'a-z-' 'A-Z_')_RUSTFLAGS := -C target-feature=+crt-static
BUILT := target/$(HOST)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
OPRC := $(BUILT)/oprc
IMAGES := hello-fn oprc-crm oprc-odgm oprc-pm oprc-proxy sample-fns
# For tests and benchmarks the whole workspace is built, so that they reuse the same features and crates.
PROGRAMS := $(if $(filter dev release,$(PROFILE)),--workspace --bins,-p oprc-cli $(addprefix -p ,$(IMAGES)))
BENCHES := analyzer class_start crm function_proxy grid nfr pm proxy
# Name of the sandbox cluster; set it to run a second one.
NAME ?= oprc
# Number of clusters that `make up` creates.
CLUSTERS ?= 1
# Installation prefix of `make install`; DESTDIR is prepended.
PREFIX ?= /usr/local
# Options for `oprc up`, for example UP="--knative" or UP="--node simulated".
UP ?=

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

.PHONY: tools
tools:
	@tools/require.sh

.PHONY: build
build: tools
	@tools/build.sh "Building oprc, PM, CRM and the samples" --profile $(PROFILE) $(PROGRAMS)

.PHONY: image
image: build ## Build the images of PM, CRM and the samples: target/*.oci.tar
	@for image in $(filter-out oprc-odgm,$(IMAGES)); do \
		$(OPRC) sandbox image --name oprc.local/$$image:dev $(BUILT)/$$image target/$$image.oci.tar || exit 1; \
	done
	@etcd=$$($(OPRC) sandbox program etcd) && \
		$(OPRC) sandbox image --name oprc.local/oprc-odgm:dev --add /usr/bin/etcd=$$etcd \
			$(BUILT)/oprc-odgm target/oprc-odgm.oci.tar
	@examples/counter-py/image.sh $(OPRC) target/counter-py.oci.tar

.PHONY: install
install: tools ## Install oprc and kubectl-oaas into PREFIX (/usr/local)
	@tools/build.sh "Building oprc" --profile $(PROFILE) -p oprc-cli
	@install -D -m 755 $(OPRC) $(DESTDIR)$(PREFIX)/bin/oprc
	@ln -sf oprc $(DESTDIR)$(PREFIX)/bin/kubectl-oaas

.PHONY: up
up: image ## Start a sandbox cluster with PM, CRM, Prometheus and a sample class
	@$(OPRC) up --name $(NAME) --clusters $(CLUSTERS) --images target $(UP)

.PHONY: down
down: build ## Stop the sandbox and delete all of its data
	@$(OPRC) down --name $(NAME)

.PHONY: status
status: build ## Show the status of the sandbox and its deployments
	@$(OPRC) sandbox status --name $(NAME)
	@$(OPRC) status --context $(NAME)
	@$(OPRC) check --context $(NAME)

.PHONY: test
test: tools ## Run all tests, including those on real clusters (as root)
	@$(MAKE) --no-print-directory image PROFILE=dev
	@PROFILE=dev tools/test.sh

.PHONY: prove
prove: tools ## Run the suites that are too long for CI and write docs/proof.md
	@$(MAKE) --no-print-directory image PROFILE=dev
	@OPRC_PROVE=docs/proof.md PROFILE=dev tools/test.sh proof::

.PHONY: bench
bench: tools ## Run the benchmarks, with optimised programs
	@$(MAKE) --no-print-directory image PROFILE=release
	@OPRC=$(CURDIR)/target/$(HOST)/release/oprc PROGRAMS=$(CURDIR)/target/$(HOST)/release \
		cargo bench --quiet --workspace $(addprefix --bench ,$(BENCHES))

.PHONY: crds
crds: tools ## Generate the CRD and the tables of settings
	@tools/generate.sh

.PHONY: lint
lint: tools ## Check formatting, lints, licences, module cycles and generated files
	@tools/lint.sh

.PHONY: fmt
fmt: tools ## Format the code
	@cargo fmt --all
	@gofmt -w tools/oprc-sandbox/programs

.PHONY: clean
clean: ## Delete build output; cached programs in ~/.cache/oprc stay
	@cargo clean
