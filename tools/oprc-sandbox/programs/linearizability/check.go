package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history of one object that isn't linearizable, as short as it was found.
type counterexample struct {
	history []*operation
	// The operations of the longest legal order.
	legal []*operation
}

func inputs(history []*operation) []porcupine.Operation {
	inputs := make([]porcupine.Operation, 0, len(history))
	for _, each := range history {
		inputs = append(inputs, porcupine.Operation{
			ClientId: each.Client, Input: each, Call: each.Call, Return: each.Return,
		})
	}
	return inputs
}

// The timeout of porcupine is unlimited if it is 0.
func remaining(deadline time.Time) time.Duration {
	return max(time.Until(deadline), time.Nanosecond)
}

func check(history []*operation, deadline time.Time) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, inputs(history), remaining(deadline))
}

// What had happened until a time: operations that hadn't returned are unknown.
func until(history []*operation, end int64) []*operation {
	var begun []*operation
	for _, each := range history {
		if each.Call > end {
			continue
		}
		if each.Return > end {
			pending := *each
			pending.Result, pending.Return = nil, math.MaxInt64
			each = &pending
		}
		begun = append(begun, each)
	}
	return begun
}

// Whether the operation can't have changed its object. A linearizable history is also linearizable
// without it.
func readsOnly(do *operation) bool {
	return do.Operation == "get" || (!do.unknown() && do.Result.Outcome != succeeded)
}

// Shortens a history that isn't linearizable: cuts it where the first response can't be explained, and
// leaves reads out that aren't needed.
func shorten(history []*operation, deadline time.Time) counterexample {
	illegal := func(history []*operation) bool {
		return check(history, deadline) == porcupine.Illegal
	}
	var ends []int64
	for _, each := range history {
		if !each.unknown() {
			ends = append(ends, each.Return)
		}
	}
	slices.Sort(ends)
	// A part of a linearizable history from its begin is linearizable.
	first, _ := slices.BinarySearchFunc(ends, true, func(end int64, _ bool) int {
		if illegal(until(history, end)) {
			return 0
		}
		return -1
	})
	if first < len(ends) {
		history = until(history, ends[first])
	}
	for at := len(history) - 1; at >= 0; at-- {
		if !readsOnly(history[at]) {
			continue
		}
		without := slices.Delete(slices.Clone(history), at, at+1)
		if illegal(without) {
			history = without
		}
	}
	slices.SortFunc(history, func(one, other *operation) int { return cmp.Compare(one.Call, other.Call) })
	return counterexample{history, longestOrder(history, deadline)}
}

func longestOrder(history []*operation, deadline time.Time) []*operation {
	_, info := porcupine.CheckOperationsVerbose(model, inputs(history), remaining(deadline))
	var longest []*operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) <= len(longest) {
				continue
			}
			longest = nil
			for _, each := range order {
				longest = append(longest, each.Input.(*operation))
			}
		}
	}
	return longest
}
