package head

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// Audit is one line of a head's audit.jsonl: a request that changes something, or that was refused for who asked.
type Audit struct {
	Time   time.Time  `json:"time"`
	Name   string     `json:"name"`
	Role   trust.Role `json:"role"`
	Serial string     `json:"serial"` // of the certificate
	Remote string     `json:"remote"` // address
	Method string     `json:"method"`
	Path   string     `json:"path"`
	Status int        `json:"status"` // of HTTP
}

const (
	auditFile = "audit.jsonl"
	auditMost = 64 << 20 // bytes; the one before is kept beside it
)

// audit is the log of who did what, which is the head's owner's alone.
type audit struct {
	mu   sync.Mutex
	name string // "" writes none
	mute bool   // the last line could not be written
}

// write appends a line. On a disk that takes none the head goes on, and says so once.
func (a *audit) write(x Audit, log func(string, ...any)) {
	if a.name == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	text, err := json.Marshal(x)
	if err == nil {
		err = a.append(append(text, '\n'))
	}
	if err != nil && !a.mute {
		log("! the audit log is not written: %v", err)
	}
	a.mute = err != nil
}

func (a *audit) append(line []byte) error {
	if i, err := os.Stat(a.name); err == nil && i.Size() > auditMost {
		if err := os.Rename(a.name, a.name+".1"); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(a.name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}

// answered is an answer whose status is known afterwards.
type answered struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// audited serves a request and enters it, if it is one to enter.
func (h *Head) audited(w http.ResponseWriter, r *http.Request, who trust.Subject, f http.HandlerFunc) {
	if r.Method == http.MethodGet && f != nil {
		f(w, r)
		return
	}
	x := Audit{Time: time.Now().UTC(), Name: who.Name, Role: who.Role, Remote: r.RemoteAddr,
		Serial: trust.Serial(r.TLS.PeerCertificates[0]), Method: r.Method, Path: r.URL.EscapedPath(),
		Status: http.StatusForbidden}
	if f != nil {
		a := &answered{w, http.StatusOK}
		f(a, r)
		x.Status = a.status
	}
	h.audit.write(x, h.logf)
}

func auditIn(dir string) *audit { return &audit{name: filepath.Join(dir, auditFile)} }
