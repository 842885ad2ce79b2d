package head

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/topology/machine"
)

// LocalAgent is an agent on the head's machine, which the head starts again when it has ended.
type LocalAgent struct {
	Dir  string   `json:"dir"`
	Args []string `json:"args"`
}

// LocalAgents are those of a head, by the names of their hosts.
type LocalAgents map[string]LocalAgent

const localFile = "agents.json"

// Save writes the list to the head's directory.
func (l LocalAgents) Save(dir string) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, localFile), text, 0o600)
}

// loadLocal reads the list of a head's directory; there may be none.
func loadLocal(dir string) (LocalAgents, error) {
	text, err := os.ReadFile(filepath.Join(dir, localFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var l LocalAgents
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, localFile), err)
	}
	return l, nil
}

// starting is how long an agent may take until it holds its directory: no second one is started meanwhile.
const starting = 2 * time.Second

// revive starts an agent of this machine again, if it has ended.
func (h *Head) revive(name string) {
	l, ok := h.local[name]
	if !ok || len(h.o.Command) == 0 || machine.Holder(l.Dir) > 0 ||
		machine.Exists(filepath.Join(h.o.Dir, control.DownFile)) {
		return
	}
	h.mu.Lock()
	_, member := h.m.Conn(name)
	again, over := time.Since(h.revived[name]) < starting, h.gone || h.m.Ending() || !member
	if !again {
		h.revived[name] = time.Now()
	}
	h.mu.Unlock()
	if over { // the cluster ends, or the host was removed
		return
	}
	if again {
		time.AfterFunc(starting, func() { h.revive(name) })
		return
	}
	pid, err := machine.Detached(l.Dir, append(append([]string(nil), h.o.Command...), l.Args...)...)
	if err != nil {
		h.event(Event{Kind: "agent", Host: name, Text: fmt.Sprintf("the agent of host %s has ended and "+
			"cannot be started again: %v", name, err)})
		return
	}
	h.event(Event{Kind: "agent", Host: name, Text: fmt.Sprintf("the agent of host %s has ended; it is "+
		"started again as pid %d", name, pid)})
}
