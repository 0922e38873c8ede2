// Checks whether a recorded history of the objects of a data grid is linearizable.
//
// The exit status is 0 if it is, 1 if it isn't, 2 if the history is invalid, and 3 if that wasn't found
// out within the time limit.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Operations of a counterexample that are printed.
const maxPrinted = 15

func main() {
	limit := flag.Duration("timeout", time.Minute, "time limit")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: linearizability [-timeout DURATION] HISTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 || *limit <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	file, err := os.Open(flag.Arg(0))
	if err != nil {
		fail(err)
	}
	history, err := readHistory(file)
	if err != nil {
		fail(fmt.Errorf("%s: %w", flag.Arg(0), err))
	}
	os.Exit(run(history, *limit))
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "linearizability: %v\n", err)
	os.Exit(2)
}

func run(history []*operation, limit time.Duration) int {
	deadline := time.Now().Add(limit)
	objects, unknown := byObject(history), 0
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		switch check(objects[name], deadline) {
		case porcupine.Illegal:
			// Has a limit of its own, so that what was found is always printed.
			report(name, shorten(objects[name], time.Now().Add(limit)))
			return 1
		case porcupine.Unknown:
			fmt.Printf("unknown: %d operations of %s took longer than %v\n", len(objects[name]), name, limit)
			return 3
		}
		for _, each := range objects[name] {
			if each.unknown() {
				unknown++
			}
		}
	}
	fmt.Printf("linearizable: %d operations of %d objects, %d of them with unknown outcome\n",
		len(history), len(objects), unknown)
	return 0
}

func report(name string, found counterexample) {
	fmt.Printf("not linearizable: object %s\n", name)
	state := object{}
	for _, each := range found.legal {
		_, state = state.step(each)
	}
	fmt.Printf("after a legal order of %d operations the object is %v; no order contains all of:\n",
		len(found.legal), state)
	begin := found.history[0].Call
	skipped := max(len(found.history)-maxPrinted, 0)
	if skipped > 0 {
		fmt.Printf("  … %d earlier operations\n", skipped)
	}
	for _, each := range found.history[skipped:] {
		mark := "!"
		if slices.Contains(found.legal, each) {
			mark = " "
		}
		fmt.Printf("%s %s\n", mark, describe(each, begin))
	}
}

func describe(do *operation, begin int64) string {
	millis := func(at int64) string { return fmt.Sprintf("%.3f", float64(at-begin)/1e6) }
	end, outcome := "…", "unknown"
	if !do.unknown() {
		end, outcome = millis(do.Return), text(do.Result)
	}
	return fmt.Sprintf("%s–%s ms client %d: %s %s → %s", millis(do.Call), end, do.Client, do.Operation,
		text(do.Args), outcome)
}

func text(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
