package dashboard

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/lfactor/lfactor/actors/cluster/agent"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/record"
)

const (
	piecesMost  = 64       // of a file at a look
	mirrorMost  = 96 << 20 // bytes that are kept of a file; one that has grown beyond begins again at its end
	jobsOfProcs = 64       // processes that are asked for their jobs
	asksAtOnce  = 8
)

// jobRun is the run of a job of a cluster, of which the head tells what agents have.
type jobRun struct {
	cluster *cluster
	id      string
	made    error              // of its folder here
	over    bool               // its files were read when it had ended; the folder's lock is held
	files   map[string]*mirror // by name; the folder's lock is held

	mu      sync.Mutex
	running bool
	procs   int
	hosts   map[string]string // of actors, as they have answered
	first   string            // host of the process that leads
}

// mirror is what was read of a file.
type mirror struct {
	begun bool
	at    int64
	mark  []byte
	size  int64 // of what is kept
	done  bool  // it does not grow, or is not told
}

// state takes in what the head says of the job.
func (j *jobRun) state(now *head.Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running, j.procs = now.State == head.Running, len(now.Procs)
	if j.procs > 0 {
		j.first = now.Procs[0].Host
	}
}

func (j *jobRun) is() (running bool, procs int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.running, j.procs
}

func (j *jobRun) path(rest string) string { return "/v1/jobs/" + url.PathEscape(j.id) + rest }

// where is the host of an actor; what is no process's is the leading one's.
func (j *jobRun) where(actor string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h, ok := j.hosts[actor]; ok {
		return h
	}
	return j.first
}

// actors asks all processes of the job what their actors do.
func (j *jobRun) actors() (all []host.Status, silent []host.Silent, err error) {
	if running, _ := j.is(); !running {
		return nil, nil, errOver
	}
	var answers []head.Because
	if err := j.cluster.do("GET", j.path("/why"), &answers); err != nil {
		return nil, nil, err
	}
	hosts := map[string]string{}
	for _, a := range answers {
		b, err := agent.BecauseOf(a.Answer, a.Proc, a.Pid, a.Host, a.Away)
		if err != nil {
			return nil, nil, err
		}
		hosts[fmt.Sprintf("process%d", a.Proc)] = a.Host
		for _, s := range b.Waits {
			hosts[record.ShortName(s.Name)] = a.Host
		}
		all = append(all, b.Waits...)
		if b.Silent != nil {
			silent = append(silent, *b.Silent)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hosts = hosts
	return all, silent, nil
}

// recent asks processes of the job for the jobs that their actors did lately.
func (j *jobRun) recent() ([]record.Job, error) {
	running, procs := j.is()
	if !running {
		return nil, record.ErrNotRunning
	}
	parts := make([][]record.Job, min(procs, jobsOfProcs))
	var wait sync.WaitGroup
	turn := make(chan struct{}, asksAtOnce)
	for n := range parts {
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			var p agent.Piece
			if j.cluster.do("GET", j.path("/files/"+control.RunJobs+"?proc="+itoa(n)), &p) == nil && p.Err == "" {
				_ = json.Unmarshal(p.Data, &parts[n]) // one that does not answer is left out
			}
		})
	}
	wait.Wait()
	var out []record.Job
	for _, p := range parts {
		out = append(out, p...)
	}
	return out, nil
}

// pull reads what has come to the run's files since; the folder's lock is held.
func (j *jobRun) pull(dir string) error {
	running, procs := j.is()
	if j.made != nil || procs == 0 || !running && j.over {
		return j.made // what was read stays
	}
	rest := false
	for _, name := range control.RunFiles {
		more, err := j.file(name).pull(j, filepath.Join(dir, name), "/files/"+name+"?")
		if err != nil {
			return err
		}
		rest = rest || more
	}
	m := j.file(control.RunSettings)
	if m.done {
		j.over = !running && !rest
		return nil
	}
	_, err := m.pull(j, filepath.Join(dir, control.RunSettings), "/settings?")
	var no *control.Refused
	if errors.As(err, &no) && no.Status == http.StatusForbidden { // this user may look and no more
		m.done, err = true, nil
	}
	m.done = m.done || m.at > 0
	j.over = !running && !rest && err == nil
	return err
}

func (j *jobRun) file(name string) *mirror {
	if j.files[name] == nil {
		j.files[name] = &mirror{}
	}
	return j.files[name]
}

// pull appends what has come to a file, and reports whether there is more of it than one look takes.
func (m *mirror) pull(j *jobRun, name, path string) (more bool, err error) {
	if m.size > mirrorMost {
		*m = mirror{}
	}
	for range piecesMost {
		at := m.at
		if !m.begun {
			at = -1
		}
		var p agent.Piece
		err := j.cluster.do("GET", j.path(path+"at="+strconv.FormatInt(at, 10)+"&mark="+hex.EncodeToString(m.mark)), &p)
		if err != nil {
			return false, err
		}
		if p.Err != "" {
			return false, errors.New(p.Err)
		}
		if err := m.write(name, p, p.Anew || p.Next < m.at); err != nil {
			return false, err
		}
		m.begun = m.begun || p.Anew
		m.at, m.mark = p.Next, p.Mark
		if !p.More {
			return false, nil
		}
	}
	return true, nil
}

// write keeps a piece.
func (m *mirror) write(name string, p agent.Piece, anew bool) error {
	if !anew && len(p.Data) == 0 {
		return nil
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if anew {
		flags |= os.O_TRUNC
		m.size = 0
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p.Data)
	m.size += int64(len(p.Data))
	return errors.Join(err, f.Close())
}

// told is what the job's host says of its checkpoints, samples or plan.
func (j *jobRun) told(name string, r *http.Request) (any, error) {
	step, err := whole(r, "step", 0)
	if err != nil {
		return nil, err
	}
	var p agent.Piece
	err = j.cluster.doWithin(toldWithin, "GET", j.path("/files/"+name+"?at="+strconv.FormatInt(step, 10)), &p)
	if err == nil && p.Err != "" {
		err = errors.New(p.Err)
	}
	return raw(p.Data), err
}

// stop asks the head to end the job behind the step under way.
func (j *jobRun) stop() error { return j.cluster.do("POST", j.path("/stop"), nil) }

func itoa(n int) string { return strconv.Itoa(n) }
