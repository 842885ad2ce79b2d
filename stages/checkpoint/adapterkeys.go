package checkpoint

import (
	"bytes"
	_ "embed" // the table of keys
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// AdapterUse is what a saved adapter is wanted for.
type AdapterUse int

// An adapter is added to the weights of its base, or computes beside them in a server.
const (
	Merged AdapterUse = iota
	Served
)

// String ends the sentence that says what cannot be done.
func (u AdapterUse) String() string { return [...]string{"added to weights", "served"}[u] }

// adapterKey says what becomes of a key of PEFT's LoraConfig for each use: + acts, . changes nothing that a saved
// adapter computes, and - is refused unless its value is one of off, which switch it off.
type adapterKey struct {
	uses string // of Merged and Served
	why  string // of a refusal, or why nothing changes
	off  []string
}

//go:embed adapterkeys.txt
var adapterTable string

// adapterKeys are the keys of LoraConfig of peft 0.21 with those of PeftConfig, and what swift adds: a line of the table has a key,
// its uses, why, and behind a bar values that switch it off beside the usual ones.
var adapterKeys = func() map[string]adapterKey {
	out := map[string]adapterKey{}
	for line := range strings.Lines(adapterTable) {
		said, off, _ := strings.Cut(strings.TrimSpace(line), " | ")
		key, rest, _ := strings.Cut(said, " ")
		uses, why, _ := strings.Cut(rest, " ")
		out[key] = adapterKey{uses, why, append([]string{"null", "false", "[]", "{}", `""`}, strings.Fields(off)...)}
	}
	return out
}()

// CheckAdapter refuses a configuration of PEFT's with a key that changes what the adapter computes in a way that a
// use does not have, or that PEFT 0.21 does not know.
func CheckAdapter(all map[string]json.RawMessage, use AdapterUse) error {
	if kind := string(all["peft_type"]); kind != `"LORA"` {
		return fmt.Errorf("peft_type %s: only LORA can be %v", kind, use)
	}
	for _, key := range SortedKeys(all) {
		k, ok := adapterKeys[key]
		if !ok {
			k = adapterKey{uses: "--", why: "no key of PEFT 0.21", off: adapterKeys["peft_type"].off}
		}
		var value bytes.Buffer
		if err := json.Compact(&value, all[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if k.uses[use] == '-' && !slices.Contains(k.off, value.String()) {
			return fmt.Errorf("%s: %s cannot be %v: %s", key, value.String(), use, k.why)
		}
	}
	return nil
}
