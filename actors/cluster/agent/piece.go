package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology/machine"
)

const (
	pieceMost = 256 << 10 // bytes of a file at a time: an agent's beats share the connection
	pieceTail = 64 << 20  // of a file that is asked for from its end
	pieceMark = 96        // bytes before its place by which a file is known again
	wholeMost = 1 << 20   // of a file that is told at once
	jobsRead  = 16 << 20  // of what a process says that its actors did
	toldLimit = 25 * time.Second
)

// Piece is a part of a file of a run's folder: whole lines, without the secrets of addresses.
type Piece struct {
	Anew bool   `json:"anew,omitempty"` // the file was cut or written anew: what was told of it before is void
	Next int64  `json:"next"`           // offset of what follows
	Mark []byte `json:"mark,omitempty"` // by which the file is known again at Next
	More bool   `json:"more,omitempty"` // there is more already
	Data []byte `json:"data,omitempty"`
	Err  string `json:"err,omitempty"`
}

// tell answers with a piece of the folder of a process's run, or with what lfactor ui --tell says of it, which is
// started in the directory of the job.
func (a *Agent) tell(s *control.Spec, m control.Message) {
	var piece Piece
	var err error
	uid, gid := 0, 0
	if s.Governed() {
		uid, gid = asWhom(s.User, root())
	}
	switch {
	case s.Governed() && s.Log != "" && !control.Within(resolved(s.Log), all(s.Dirs, resolved)):
		err = fmt.Errorf("%s is in no directory of %s's", s.Log, s.User)
	case slices.Contains(control.RunTold, m.Text):
		piece, err = a.told(s, uid, gid, m)
	default:
		err = errors.New("the job's user is not who reads here")
		machine.As(uid, gid, func() { piece, err = pieceOf(s.Log, m) })
	}
	if err != nil {
		piece = Piece{Err: configs.Redact(err.Error())}
	}
	if m.Data, err = json.Marshal(piece); err != nil {
		a.logf("%s of job %s process %d: %v", m.Text, m.Job, m.Proc, err)
		return
	}
	m.Kind, m.Text = control.Because, ""
	a.step(decide.Found{M: m})
}

// askedMost are the questions that wait at once for programs to answer them, the one under way among them: whoever
// asked may have gone.
const askedMost = 4

// told asks a program of its own, as a plan takes seconds and memory, and one at a time.
func (a *Agent) told(s *control.Spec, uid, gid int, m control.Message) (Piece, error) {
	if s.Log == "" {
		return Piece{}, errors.New("the job has no folder of a run: it does not train")
	}
	defer a.asked.Add(-1)
	if a.asked.Add(1) > askedMost {
		return Piece{}, fmt.Errorf("%d questions wait here for an answer: ask again when they have it", askedMost)
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), toldLimit)
	defer cancel()
	args := []string{"ui", "--tell", m.Text, "--step", strconv.FormatInt(m.At, 10), s.Log}
	c := exec.Command(a.o.Command[0], append(slices.Clone(a.o.Command[1:]), args...)...)
	c.Dir = s.Dir
	if s.Governed() { // what a run's folder says is its user's word
		conf, err := a.confinement(s, nil, uid, gid)
		if err == nil {
			c, err = a.command(s, conf, nil, args...)
		}
		if err != nil {
			return Piece{}, err
		}
	}
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr, c.WaitDelay = &out, &errs, time.Second
	if err := c.Start(); err != nil {
		return Piece{}, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Process.Kill() })() // it may have ended
	switch err := c.Wait(); {
	case ctx.Err() != nil:
		return Piece{}, fmt.Errorf("%s took more than %v", m.Text, toldLimit)
	case err != nil:
		return Piece{}, errors.New(strings.TrimPrefix(strings.TrimSpace(errs.String()), "error: "))
	case out.Len() > wholeMost:
		return Piece{}, fmt.Errorf("%s has %d bytes, more than %d", m.Text, out.Len(), wholeMost)
	}
	return Piece{Data: []byte(configs.Redact(out.String()))}, nil
}

// resolved is a path without links, or as it is where it leads nowhere.
func resolved(name string) string {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		return to
	}
	return name
}

func all(names []string, do func(string) string) (out []string) {
	for _, n := range names {
		out = append(out, do(n))
	}
	return out
}

func pieceOf(dir string, m control.Message) (Piece, error) {
	if dir == "" {
		return Piece{}, errors.New("the job has no folder of a run: it does not train")
	}
	if m.Text == control.RunJobs {
		return jobsOf(dir, m.Proc)
	}
	if m.Text != control.RunSettings && !slices.Contains(control.RunFiles, m.Text) {
		return Piece{}, fmt.Errorf("%q is no file that is told of a run", m.Text)
	}
	root, err := os.OpenRoot(dir) // a link leads nowhere else
	if err != nil {
		return Piece{}, err
	}
	defer root.Close() //nolint:errcheck // it was read only
	if i, err := root.Stat(m.Text); err != nil || !i.Mode().IsRegular() {
		return Piece{}, nil // it may come
	}
	f, err := root.Open(m.Text)
	if err != nil {
		return Piece{}, err
	}
	defer f.Close() //nolint:errcheck // as above
	return readPiece(f, m.At, m.Data, m.Text == control.RunSettings)
}

// readPiece reads whole lines from an offset on: at below 0 begins where the file's last pieceTail bytes do.
// Where mark does not fit any more the file is read anew. All of it is one piece where whole says so.
func readPiece(f *os.File, at int64, mark []byte, whole bool) (p Piece, err error) {
	i, err := f.Stat()
	if err != nil {
		return p, err
	}
	if at > 0 {
		now, err := markOf(f, at)
		if err != nil || at > i.Size() || !bytes.Equal(now, mark) {
			at = -1
		}
	}
	skip := false
	if at < 0 {
		p.Anew, at = true, max(0, i.Size()-pieceTail)
		skip = at > 0
	}
	most := int64(pieceMost)
	if whole {
		if most = wholeMost; i.Size() > most {
			return p, fmt.Errorf("%s has %d bytes, more than %d", filepath.Base(f.Name()), i.Size(), most)
		}
	}
	buf := make([]byte, most)
	n, err := f.ReadAt(buf, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return p, err
	}
	text := buf[:n]
	if skip { // to the next whole line
		k := bytes.IndexByte(text, '\n') + 1
		text, at = text[k:], at+int64(k)
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	if whole {
		end = len(text)
	}
	if end == 0 && len(text) == pieceMost { // a line that nobody reads is left out
		end, text = len(text), append(bytes.Repeat([]byte{' '}, len(text)-1), '\n')
	}
	p.Next, p.Data = at+int64(end), []byte(configs.Redact(string(text[:end])))
	p.More = end > 0 && p.Next < i.Size()
	p.Mark, err = markOf(f, p.Next)
	return p, err
}

// markOf is a hash of what lies before an offset.
func markOf(f *os.File, at int64) ([]byte, error) {
	b := make([]byte, min(at, pieceMark))
	if _, err := f.ReadAt(b, at-int64(len(b))); err != nil {
		return nil, err
	}
	h := sha256.Sum256(b)
	return h[:], nil
}

// jobsOf asks a process for its newest jobs, as JSON: those that a piece has room for.
func jobsOf(dir string, proc int) (Piece, error) {
	c, err := net.DialTimeout("unix", machine.AnswerSocket(dir, control.RunJobs, proc), whyLimit)
	if err != nil {
		return Piece{}, errors.New("the process tells of no jobs")
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(whyLimit)) // a connection that takes none fails below
	var jobs []json.RawMessage                  // by their start
	if err := json.NewDecoder(io.LimitReader(c, jobsRead)).Decode(&jobs); err != nil {
		return Piece{}, fmt.Errorf("the process does not tell of its jobs: %w", err)
	}
	size, from := 0, len(jobs)
	for ; from > 0 && size+len(jobs[from-1]) < pieceMost; from-- {
		size += len(jobs[from-1]) + 1
	}
	text, err := json.Marshal(jobs[from:])
	return Piece{Data: text}, err
}
