# OaaS: what people and CI run. `make help` explains each target.

HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# How programs are built: `image` for use, `dev` to have them sooner.
PROFILE ?= image
# Images hold one static program each; everything is built the same way, and so once. The name of
# the second variable has the target in capitals. tools/static.sh says the same to scripts.
export CARGO_BUILD_TARGET := $(HOST)
export CARGO_TARGET_$(shell echo '$(HOST)' | tr 'a-z-' 'A-Z_')_RUSTFLAGS := -C target-feature=+crt-static
BUILT := target/$(HOST)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
OPRC := $(BUILT)/oprc
IMAGES := hello-fn odgm-stand-in oprc-crm oprc-pm
# Programs for tests share what they depend on with the tests, features and all: it is built once.
PROGRAMS := $(if $(filter dev,$(PROFILE)),--workspace --bins,-p oprc-cli $(addprefix -p ,$(IMAGES)))
# The cluster's name, for a second one beside the first.
NAME ?= oprc
# How many clusters `make up` makes.
CLUSTERS ?= 1
# Where `make install` puts `oprc`; DESTDIR goes before it.
PREFIX ?= /usr/local
# Options for `oprc up`, such as UP="--knative" or UP="--node simulated".
UP ?=

.PHONY: help
help: ## Explain each target
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

.PHONY: tools
tools:
	@tools/require.sh

.PHONY: build
build: tools
	@cargo build --quiet --profile $(PROFILE) $(PROGRAMS)

.PHONY: image
image: build ## Make the images of PM, CRM and the samples, target/*.oci.tar
	@for image in $(IMAGES); do \
		$(OPRC) sandbox image --name oprc.local/$$image:dev $(BUILT)/$$image target/$$image.oci.tar || exit 1; \
	done

.PHONY: install
install: tools ## Install oprc, which is also `kubectl oaas`, into PREFIX=/usr/local
	@cargo build --quiet --profile $(PROFILE) -p oprc-cli
	@install -D -m 755 $(OPRC) $(DESTDIR)$(PREFIX)/bin/oprc
	@ln -sf oprc $(DESTDIR)$(PREFIX)/bin/kubectl-oaas

.PHONY: up
up: image ## From nothing to clusters with PM, CRM, Prometheus and a sample class that answers
	@$(OPRC) up --name $(NAME) --clusters $(CLUSTERS) --images target $(UP)

.PHONY: down
down: build ## End what `make up` started and leave the machine as it was
	@$(OPRC) down --name $(NAME)

.PHONY: status
status: build ## Tell how the cluster and the sample class are
	@$(OPRC) sandbox status --name $(NAME)
	@$(OPRC) status --context $(NAME)
	@$(OPRC) check --context $(NAME)

.PHONY: test
test: tools ## Run all tests, those on real clusters included
	@$(MAKE) --no-print-directory image PROFILE=dev
	@PROFILE=dev tools/test.sh

.PHONY: prove
prove: tools ## Run the suites that are too long for CI, and write docs/proof.md
	@$(MAKE) --no-print-directory image PROFILE=dev
	@OPRC_PROVE=docs/proof.md PROFILE=dev tools/test.sh proof::

.PHONY: bench
bench: image ## Print figures as ratios against a limit or a peer
	@OPRC=$(CURDIR)/$(OPRC) PROGRAMS=$(CURDIR)/$(BUILT) cargo bench --quiet --profile $(PROFILE) -p oprc-tests

.PHONY: crds
crds: tools ## Write what is generated: custom resource definitions, the table of settings
	@tools/generate.sh

.PHONY: lint
lint: tools ## Check formatting, lints, licences, sources, and that generated files are fresh
	@tools/lint.sh

.PHONY: fmt
fmt: tools ## Format the code
	@cargo fmt --all
	@gofmt -w tools/oprc-sandbox/programs

.PHONY: clean
clean: ## Delete what was built here; programs in the cache stay
	@cargo clean
