package head

import (
	"container/list"
	"fmt"
	"net"
	"sync"
	"time"
)

// knocks holds off those who ask to join and know no token: one try a second from an address, and one line a
// second in the log, whatever comes.
type knocks struct {
	log func(format string, args ...any)
	now func() time.Time

	mu     sync.Mutex
	recent list.List // of knock, the oldest first
	at     map[string]*list.Element
	count  int64
	logged time.Time
}

// knock is a try with a wrong secret.
type knock struct {
	addr string
	when time.Time
}

// KnockEvery is how long an address waits that has tried a secret that is none.
const KnockEvery = time.Second

// knocksMost is how many addresses are remembered; of more at once the oldest may try again earlier.
const knocksMost = 4096

// try says why an address may not ask to join now.
func (k *knocks) try(remote string) error {
	addr, _, err := net.SplitHostPort(remote)
	if err != nil {
		addr = remote
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for e := k.recent.Front(); e != nil && now.Sub(e.Value.(knock).when) >= KnockEvery; e = k.recent.Front() {
		k.forget(e)
	}
	if k.at[addr] == nil {
		return nil
	}
	k.count++
	return fmt.Errorf("%s has tried to join with a token that is not known, less than %v ago: wait so long, "+
		"and get a token with `lfactor cluster token` on the head's host", addr, KnockEvery)
}

// wrong notes that an address has tried a secret that is none.
func (k *knocks) wrong(remote string) {
	addr, _, err := net.SplitHostPort(remote)
	if err != nil {
		addr = remote
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if k.at == nil {
		k.at = map[string]*list.Element{}
	}
	if e := k.at[addr]; e != nil {
		k.forget(e)
	}
	k.at[addr] = k.recent.PushBack(knock{addr, now})
	if k.recent.Len() > knocksMost {
		k.forget(k.recent.Front())
	}
	k.count++
	if now.Sub(k.logged) >= KnockEvery {
		k.logged = now
		k.log("%s may not join: it has no token (%d such tries so far)", addr, k.count)
	}
}

// forget drops an address from the record of recent attempts.
func (k *knocks) forget(e *list.Element) {
	delete(k.at, e.Value.(knock).addr)
	k.recent.Remove(e)
}
