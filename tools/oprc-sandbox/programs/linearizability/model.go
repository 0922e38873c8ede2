package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// The state of one object.
type object struct {
	exists bool
	values values
	// Versions of an object only grow, also if it is deleted and created again. A write whose response
	// has no version leaves it greater than this one, and the next response tells it.
	version int64
	exact   bool
}

func (o object) equal(other object) bool {
	return o.exists == other.exists && o.exact == other.exact && o.version == other.version &&
		maps.Equal(o.values, other.values)
}

func (o object) canHave(version int64) bool {
	if o.exact {
		return version == o.version
	}
	return version > o.version
}

// The object after a write. A version of 0 is one that the response doesn't tell. False if the version
// isn't a newer one.
func (o object) written(values values, version int64) (bool, object) {
	next := object{exists: true, values: values, version: o.version}
	if version != 0 {
		next.version, next.exact = version, true
	}
	return version == 0 || version > o.version, next
}

func (o object) deleted() object {
	return object{version: o.version}
}

func (o object) count() int64 {
	count, err := strconv.ParseInt(o.values["count"], 10, 64)
	if err != nil {
		return 0
	}
	return count
}

// A copy that isn't nil.
func (v values) clone() values {
	next := make(values, len(v)+1)
	maps.Copy(next, v)
	return next
}

func (o object) incremented(by int64) values {
	next := o.values.clone()
	next["count"] = strconv.FormatInt(o.count()+by, 10)
	return next
}

func (o object) patched(changes values) values {
	next := o.values.clone()
	for key, value := range changes {
		if value == "null" {
			delete(next, key)
		} else {
			next[key] = value
		}
	}
	return next
}

// Whether the object may be as a write requires it, and the object with the version that it then has.
func (o object) expected(do *operation) (bool, object) {
	if do.Operation == "create" {
		return !o.exists, o
	}
	if do.Args.Version == 0 {
		return o.exists || do.Operation == "put", o
	}
	if !o.exists || !o.canHave(do.Args.Version) {
		return false, o
	}
	o.version, o.exact = do.Args.Version, true
	return true, o
}

func (o object) apply(do *operation, version int64) (bool, object) {
	switch do.Operation {
	case "patch":
		return o.written(o.patched(do.Args.State), version)
	case "increment":
		return o.written(o.incremented(do.Args.By), version)
	case "delete":
		return true, o.deleted()
	default:
		return o.written(do.Args.State, version)
	}
}

// Whether an operation with this outcome is possible now, and the object afterwards.
func (o object) step(do *operation) (bool, object) {
	if do.Operation == "get" {
		return o.read(do)
	}
	possible, before := o.expected(do)
	if do.unknown() {
		if !possible {
			return true, o
		}
		return before.apply(do, 0)
	}
	switch do.Result.Outcome {
	case succeeded:
		if !possible {
			return false, o
		}
		if do.Operation == "increment" && before.count()+do.Args.By != do.Result.Count {
			return false, o
		}
		return before.apply(do, do.Result.Version)
	case absent:
		return !o.exists && do.Args.Version == 0 && do.Operation != "create" && do.Operation != "put", o
	default:
		conditional := do.Operation == "create" || do.Args.Version != 0
		// A version that isn't known exactly may be another one than the expected one.
		return conditional && (!possible || (do.Args.Version != 0 && !o.exact)), o
	}
}

func (o object) read(do *operation) (bool, object) {
	if do.unknown() {
		return true, o
	}
	if do.Result.Outcome != succeeded {
		return do.Result.Outcome == absent && !o.exists, o
	}
	if !o.exists || !o.canHave(do.Result.Version) || !maps.Equal(o.values, do.Result.State) {
		return false, o
	}
	o.version, o.exact = do.Result.Version, true
	return true, o
}

func (o object) String() string {
	if !o.exists {
		return "absent"
	}
	text, err := json.Marshal(o.values)
	if err != nil {
		return err.Error()
	}
	version := fmt.Sprintf("version %d", o.version)
	if !o.exact {
		version = fmt.Sprintf("a version after %d", o.version)
	}
	return fmt.Sprintf("%s with %s", text, version)
}

var model = porcupine.Model{
	Init: func() any { return object{} },
	Step: func(state, input, _ any) (bool, any) {
		return state.(object).step(input.(*operation))
	},
	Equal: func(one, other any) bool { return one.(object).equal(other.(object)) },
}
