package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

const maxLineBytes = 1 << 20

// An operation of a history, one line of the file. Times are in nanoseconds of one clock.
type operation struct {
	Client    int       `json:"client"`
	Object    string    `json:"object"`
	Operation string    `json:"operation"`
	Args      arguments `json:"args"`
	// Missing if the outcome is unknown: the operation may happen at any time after its call, or never.
	Result *result `json:"result"`
	Call   int64   `json:"call"`
	Return int64   `json:"return"`
}

type arguments struct {
	// Of create and put; of patch, where null removes a key.
	State values `json:"state,omitempty"`
	// Of increment.
	By int64 `json:"by,omitempty"`
	// The version that put, patch and delete expect; 0 if they expect none.
	Version int64 `json:"version,omitempty"`
}

type result struct {
	Outcome string `json:"outcome"`
	// The version after a write or of a read; 0 if the response had none.
	Version int64 `json:"version,omitempty"`
	// Of get.
	State values `json:"state,omitempty"`
	// Of increment.
	Count int64 `json:"count,omitempty"`
}

const (
	succeeded = "ok"
	absent    = "absent"
	// The object doesn't have the expected version, or exists although it must not.
	changed = "changed"
)

var operations = []string{"create", "put", "patch", "delete", "increment", "get"}

// The values of an object by key, as compact JSON.
type values map[string]string

func (v *values) UnmarshalJSON(text []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*v = make(values, len(raw))
	for key, value := range raw {
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			return err
		}
		(*v)[key] = compact.String()
	}
	return nil
}

func (v values) MarshalJSON() ([]byte, error) {
	raw := make(map[string]json.RawMessage, len(v))
	for key, value := range v {
		raw[key] = json.RawMessage(value)
	}
	return json.Marshal(raw)
}

func (o *operation) unknown() bool {
	return o.Result == nil
}

func (o *operation) check() error {
	switch {
	case o.Object == "":
		return errors.New("object is empty")
	case !slices.Contains(operations, o.Operation):
		return fmt.Errorf("operation is %q; expected: one of %q", o.Operation, operations)
	case o.unknown():
		return nil
	case !slices.Contains([]string{succeeded, absent, changed}, o.Result.Outcome):
		return fmt.Errorf("outcome is %q; expected: %s, %s or %s", o.Result.Outcome, succeeded, absent, changed)
	case o.Return < o.Call:
		return errors.New("return is before call")
	}
	return nil
}

// Reads a history. An unknown operation returns at the end of time.
func readHistory(input io.Reader) ([]*operation, error) {
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, maxLineBytes)
	var history []*operation
	for number := 1; lines.Scan(); number++ {
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		read := new(operation)
		err := decoder.Decode(read)
		if err == nil {
			err = read.check()
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if read.unknown() {
			read.Return = math.MaxInt64
		}
		history = append(history, read)
	}
	return history, lines.Err()
}

// The histories of the objects. A history is linearizable if that of each object is.
func byObject(history []*operation) map[string][]*operation {
	objects := make(map[string][]*operation)
	for _, each := range history {
		objects[each.Object] = append(objects[each.Object], each)
	}
	return objects
}
