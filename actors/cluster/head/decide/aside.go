package decide

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// keyAside is before the keys of what was set aside: it is kept as it was, and no head reads it.
const keyAside = "aside/"

// aside is something of the store that a head cannot read, or that has ended heads.
type aside struct {
	key, why string
	value    []byte
}

// touch says which stored thing is worked on from here to the end of the step: if that ends the process, its
// driver knows by what.
func (h *Head) touch(key string) {
	if h.at = key; h.o.Touch != nil {
		h.o.Touch(key)
	}
}

// At is the key of the stored thing that the step under way works on; "" outside a step, or where it works on none.
func (h *Head) At() string { return h.at }

// each reads things of one kind of the store, held to their bounds.
func each[T any](see func(key string, x T) error) func(key string, text []byte) error {
	return func(key string, text []byte) error {
		var x T
		err := json.Unmarshal(text, &x)
		if err == nil {
			err = control.Bounded(key, &x)
		}
		if err != nil {
			return err
		}
		return see(key, x)
	}
}

// sound says what is wrong with a job of the store under a name.
func (j *Job) sound(name string) error {
	switch n, err := strconv.Atoi(j.ID); {
	case err != nil || n < 1 || j.ID != name:
		return fmt.Errorf("%.64q is not the number of job %.64q", j.ID, name)
	case j.State != Queued && j.State != Running && j.State != Ended:
		return fmt.Errorf("%.64q is no state of a job", j.State)
	case j.State == Running && len(j.Procs) == 0:
		return fmt.Errorf("it runs and has no process")
	}
	return j.Spec.Check()
}

// setAside puts what cannot be read, or has ended heads, where it ends none, each in a turn of its own, as it
// may be as large as a commit may be.
func (h *Head) setAside() {
	for _, x := range h.aside {
		h.write(keyAside+x.key, x.value)
		h.write(x.key, nil)
		h.event(Event{Kind: "aside", Text: fmt.Sprintf("%.128s of the store is set aside: %.512s; it is kept "+
			"under %s", x.key, x.why, keyAside)})
		h.turns = append(h.turns, turn{h.ops, h.said})
		h.ops, h.said = nil, nil
	}
	h.aside = nil
}
