package ui

// A headless Chromium is driven by the DevTools protocol over two pipes: JSON with a zero byte behind each message.
// Source: chromedevtools.github.io/devtools-protocol, --remote-debugging-pipe.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for an answer, and for what it expects on a page.
const patience = 30 * time.Second

// Browser is a Chromium under way.
type Browser struct {
	Pid int // of the process that leads it

	mu    sync.Mutex
	out   io.Writer
	last  int
	calls map[int]chan reply
	pages map[string]*Page // by session
}

// reply answers a command, or is an event where it has no ID.
type reply struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser begins a browser, which ends with the test. The test is skipped where there is no chromium.
// Names of hosts are looked up as rules say, as in "MAP evil.example 127.0.0.1".
func startBrowser(t testing.TB, rules string) *Browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("skipped: wants chromium")
	}
	theirIn, in, err := os.Pipe()
	require.NoError(t, err)
	out, theirOut, err := os.Pipe()
	require.NoError(t, err)
	c := exec.Command(program, "--headless=new", "--no-sandbox", "--remote-debugging-pipe",
		"--no-first-run", "--disable-gpu", "--disable-background-networking", "--enable-precise-memory-info",
		"--host-resolver-rules="+rules, "--user-data-dir="+t.TempDir())
	c.ExtraFiles = []*os.File{theirIn, theirOut}
	require.NoError(t, c.Start())
	require.NoError(t, theirIn.Close())
	require.NoError(t, theirOut.Close())
	b := &Browser{Pid: c.Process.Pid, out: in, calls: map[int]chan reply{}, pages: map[string]*Page{}}
	over := make(chan struct{})
	go func() { b.listen(out); close(over) }()
	t.Cleanup(func() {
		_ = b.call("", "Browser.close", nil, nil)                          // it may have gone
		timer := time.AfterFunc(patience, func() { _ = c.Process.Kill() }) // as above
		_ = c.Wait()                                                       // as above
		timer.Stop()
		require.NoError(t, errors.Join(in.Close(), out.Close()))
		<-over
	})
	return b
}

// listen hands out answers and events until the browser has gone.
func (b *Browser) listen(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		text, err := in.ReadBytes(0)
		var m reply
		if err == nil {
			err = json.Unmarshal(text[:len(text)-1], &m)
		}
		b.mu.Lock()
		if err != nil {
			for _, c := range b.calls {
				close(c)
			}
			b.calls = nil
			b.mu.Unlock()
			return
		}
		call, page := b.calls[m.ID], b.pages[m.Session]
		delete(b.calls, m.ID)
		b.mu.Unlock()
		if call != nil {
			call <- m
		} else if page != nil {
			page.heard(m)
		}
	}
}

// call carries a command out, for a page where session names one, and decodes its result.
func (b *Browser) call(session, method string, params, result any) error {
	b.mu.Lock()
	if b.calls == nil {
		b.mu.Unlock()
		return fmt.Errorf("%s: the browser has gone", method)
	}
	b.last++
	id, answer := b.last, make(chan reply, 1)
	b.calls[id] = answer
	m := map[string]any{"id": id, "method": method}
	if session != "" {
		m["sessionId"] = session
	}
	if params != nil {
		m["params"] = params
	}
	text, err := json.Marshal(m)
	if err == nil {
		_, err = b.out.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case got, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has gone", method)
		case got.Error != nil:
			return fmt.Errorf("%s: %s", method, got.Error.Message)
		case result != nil:
			return json.Unmarshal(got.Result, result)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer for %v", method, patience)
	}
}
