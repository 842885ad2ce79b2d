// Package control is what head, agents and processes of a cluster say to each other.
package control

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/topology"
)

// What a message of kind Read may name: RunFiles are those of a run's folder that whoever may look is told,
// line by line as they grow; RunSettings those that only who may submit jobs is told; RunJobs is what actors
// of a process did lately.
const (
	RunSettings = "run.yaml"
	RunJobs     = "jobs"
)

// RunTold are questions about a run that lfactor ui --tell answers on its host, where its checkpoints, data and model are.
var RunTold = []string{"checkpoints", "samples", "plan"}

// RunFiles are explained above.
var RunFiles = []string{"metrics.jsonl", "log.jsonl", "edges.jsonl", "quarantine.jsonl"}

// Kind of a message.
type Kind string

// Between an agent and the head.
const (
	Hello Kind = "hello" // the agent's first: Info, and Procs that it has
	// the head's answer: Revoked, its term as Epoch, and Procs with what it has of their output; with Text, a refusal
	Welcome Kind = "welcome"
	Beat    Kind = "beat" // both ways, each Beats
	// start a process: Spec, Env; one that leads in place of Code others takes over Procs
	Order   Kind = "order"
	Started Kind = "started" // it runs: Pid, or Err says why not, with the code Passing where that may be over soon
	Output  Kind = "output"  // Data of Stream
	Signal  Kind = "signal"  // send Code, a signal's number, to a process
	Forget  Kind = "forget"  // a job is over: its files may go
	Revoke  Kind = "revoke"  // Revoked replaces what the agent knew
	Renewed Kind = "renewed" // a fresh certificate of the agent, Text
	Renew   Kind = "renew"   // asks for one
	Quit    Kind = "quit"    // the agent ends, with all of its processes; Code 1 also removes its directory
	AskWhy  Kind = "why"     // what a process's actors wait for, asked in round Code
	Because Kind = "because" // its answer, Data
	// wants a file of the folder of a process's run, Text, from offset At on, where it lay as Data marks it;
	// or what its actors did, by the name "jobs"; or the answer to one of RunTold, of step At. Spec has the folder, Log, and
	// Dir, of a job that is over. Because answers it with an agent.Piece
	Read    Kind = "read"
	Leaving Kind = "leaving" // the agent wants to end: its processes are to move first
	Probe   Kind = "probe"   // measure the way to Peers
	Probed  Kind = "probed"  // what came of it: Links
	Hosts   Kind = "hosts"   // Hosts and Dirs replace what the agent and its processes knew
	Change  Kind = "change"  // Hosts come to what they knew, Gone go from it; Dirs replace
)

// Between a process and the head, by way of its agent. Start, Leave, Kill, Slow, Hung and Widths come
// from the process that leads.
const (
	Listening Kind = "listening" // a process takes edges at Addr
	Peers     Kind = "peers"     // where the processes of the run take edges
	Start     Kind = "start"     // wants process Peer, with Env
	Leave     Kind = "leave"     // asks Peer to end
	Kill      Kind = "kill"      // ends Peer
	Widths    Kind = "widths"    // with how many replicas the job can run: Widths
	// process Peer is slow, or with Code 1 a way that it sends on; Text says by what that shows
	Slow   Kind = "slow"
	Hung   Kind = "hung"   // process Peer says that it lives and takes no step: it is to be ended; Text says why
	Placed Kind = "placed" // process Peer has number Gen and runs as Text, or cannot (Err)
	Ready  Kind = "ready"  // a process has its actors
	// no host has room for process Peer, Text says what for: the run is to make durable what the others hold, and end
	NoRoom Kind = "noroom"
	Exited Kind = "exited" // a process has ended: Text says how, Code its exit code
)

// Passing is the code of a process that could not be started for want of files, memory or disk.
const Passing = 75

// Message is one word of the conversation. Job, Proc and Gen say which process it is about: Gen counts the processes
// that had this number in this job, so that a late word about one is not taken for its successor's.
type Message struct {
	Kind  Kind   `json:"k"`
	Job   string `json:"j,omitempty"`
	Proc  int    `json:"p,omitempty" most:"8192"`
	Gen   int    `json:"g,omitempty" most:"1073741824"`
	Peer  int    `json:"to,omitempty" most:"8192"`
	Epoch int64  `json:"e,omitempty"`
	// offset of Data, or which piece of a process's output it is; of Start the number of the request, which
	// what is said of the process that it is for repeats; of Leaving and Signal the nanoseconds that are left, 0 for no limit
	At      int64        `json:"at,omitempty" least:"-1"`
	Pid     int          `json:"pid,omitempty" most:"1073741824"`
	Code    int          `json:"c,omitempty" least:"-1024" most:"1073741824"`
	Text    string       `json:"t,omitempty" most:"65536"`
	Err     string       `json:"err,omitempty" most:"65536"`
	Addr    string       `json:"a,omitempty" most:"256"`
	Node    string       `json:"node,omitempty" most:"256"` // the host of the one that is spoken to
	Stream  string       `json:"s,omitempty" most:"16"`
	Data    []byte       `json:"d,omitempty"`
	Env     []string     `json:"env,omitempty" most:"4096" each:"1048576"`
	Spec    *Spec        `json:"spec,omitempty"`
	Info    *Info        `json:"info,omitempty"`
	Procs   []Proc       `json:"procs,omitempty"`
	Peers   map[int]Peer `json:"peers,omitempty"`
	Links   []Link       `json:"links,omitempty"`
	Widths  []Width      `json:"widths,omitempty"`
	Revoked []string     `json:"revoked,omitempty" most:"400000"`
	Ports   [2]int       `json:"ports,omitzero" each:"65535"` // that a process may take edges at, first and last
	// Hosts are the connected ones with the addresses of their agents, Dirs what jobs keep files in.
	Hosts map[string]string `json:"hosts,omitempty"`
	Dirs  []string          `json:"dirs,omitempty"`
	Users []string          `json:"users,omitempty"` // whose each of Dirs is, "" for an administrator's; none for all
	Gone  []string          `json:"gone,omitempty"`
}

// Changed is what hosts are after a message of kind Hosts or Change; what they were is left as it is.
func (m Message) Changed(was map[string]string) map[string]string {
	if m.Kind == Hosts {
		return m.Hosts
	}
	out := maps.Clone(was)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, m.Hosts)
	for _, name := range m.Gone {
		delete(out, name)
	}
	return out
}

// Spec is what a job is: a command line of lfactor, the directory it was given in, and the files it names.
type Spec struct {
	Args  []string          `json:"args" most:"4096" each:"65536"`
	Dir   string            `json:"dir"`
	Files map[string][]byte `json:"files,omitempty" most:"256" each:"16777216"` // by their path as Args has it
	Env   []string          `json:"env,omitempty" most:"256" each:"65536"`
	Log   string            `json:"log,omitempty"`                        // directory in which a process answers why
	Keep  []string          `json:"keep,omitempty" most:"8"  each:"1024"` // directories that its hosts keep copies of for each other
	Procs int               `json:"procs" most:"8192"`                    // processes of the run
	// it wants; 0 for as many as there are, at most one a process
	Hosts int `json:"hosts" most:"8192"`
	// train.restarts, 0 where it has none, and train.restart_window, in seconds
	Restarts int     `json:"restarts,omitempty" most:"1048576"`
	Window   float64 `json:"window,omitempty"`
	// which of its processes send each other something
	Talks []topology.Talk `json:"talks,omitempty" most:"262144"`
	// Who has submitted it, as the certificate says, with its role, and the directories that jobs of a
	// Submitter may use: the head sets them, whatever the job says.
	User string   `json:"user,omitempty" most:"256"`
	Role string   `json:"role,omitempty" most:"32"`
	Dirs []string `json:"dirs,omitempty" most:"64" each:"1024"`
	Name string   `json:"name,omitempty" most:"1024"`
}

// Submitter is the role of whose jobs are held to their directories.
const Submitter = "submit"

// Governed reports whether a job is a submitter's.
func (s *Spec) Governed() bool { return s.Role == Submitter }

// Size is about what a job takes as it comes, in bytes.
func (s *Spec) Size() int {
	n := 32 * len(s.Talks)
	for _, text := range s.Files { //lfvet:order a sum
		n += len(text) / 3 * 4
	}
	for _, texts := range [][]string{s.Args, s.Env, s.Keep, s.Dirs} {
		for _, t := range texts {
			n += len(t)
		}
	}
	return n
}

// Bare is a job without the contents of its files and the values of its environment.
func (s Spec) Bare() Spec {
	s.Files = maps.Clone(s.Files)
	for name := range s.Files { //lfvet:order each for itself
		s.Files[name] = nil
	}
	s.Env = slices.Clone(s.Env)
	for i, e := range s.Env {
		s.Env[i], _, _ = strings.Cut(e, "=")
	}
	return s
}

// Width is a number of replicas that a job can run with.
type Width struct {
	Replicas int      `json:"replicas" least:"1" most:"1048576"`
	Procs    int      `json:"procs" least:"1" most:"8192"`              // processes that it has then
	Bytes    []int64  `json:"bytes" most:"8192" each:"281474976710656"` // of memory that each of them needs
	Args     []string `json:"args,omitempty" most:"64"`                 // what its command line says beside that of the job
}

// Need is the memory that process n needs, in bytes.
func (w Width) Need(n int) int64 {
	if n < len(w.Bytes) {
		return w.Bytes[n]
	}
	return 0
}

// Info is what an agent says of its host.
type Info struct {
	Name    string `json:"name"`
	Addr    string `json:"addr"` // where its processes take edges, without a port
	Binary  string `json:"binary"`
	Version string `json:"version"`
	Cores   int    `json:"cores" most:"1048576"`
	Memory  int64  `json:"memory"` // bytes
	Disk    int64  `json:"disk"`   // bytes free in its directory
	Pid     int    `json:"pid"`
	Probe   string `json:"probe"`                                                         // where it answers the probes of other agents
	Clock   int64  `json:"clock" most:"9223372036854775807" least:"-9223372036854775808"` // Unix nanoseconds when it said so
}

// Proc is a process of a job on an agent's host.
type Proc struct {
	Job   string `json:"job"`
	Proc  int    `json:"proc" most:"8192"`
	Gen   int    `json:"gen" most:"1073741824"`
	Pid   int    `json:"pid" most:"1073741824"`
	Addr  string `json:"addr,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	Over  bool   `json:"over,omitempty"` // it has ended, as Text and Code say
	Text  string `json:"text,omitempty" most:"65536"`
	Code  int    `json:"code,omitempty" least:"-1024" most:"1024"`
	Wrote int64  `json:"wrote,omitempty"` // pieces of its output that the head has
	// of a process that a new leader takes over: its host, and what it was started with
	Node string   `json:"node,omitempty"`
	Env  []string `json:"env,omitempty" most:"4096" each:"1048576"`
}

// Peer is where a process takes edges.
type Peer struct {
	Node string `json:"node"` // the name in its certificate
	Addr string `json:"addr"`
	Gen  int    `json:"gen" most:"1073741824"`
}

// Link is a measured way from one host to another.
type Link struct {
	From  string        `json:"from"`
	To    string        `json:"to"`
	RTT   time.Duration `json:"rtt"`
	Rate  float64       `json:"rate"` // bytes a second
	Fault string        `json:"fault,omitempty"`
}

// Detection of a silent end: both sides of a connection say something each Beats, and one that has said
// nothing for Silence is suspect. An end of the connection itself is noticed at once.
const (
	Beats   = 100 * time.Millisecond
	Silence = 400 * time.Millisecond
	// HeadSilence is what an agent waits for a silent head: nothing depends on that but a new connection.
	HeadSilence = time.Second
	// Stopped is how long an agent may be silent whose host acknowledges what it is sent.
	Stopped = 3 * time.Second
)

// More is how much longer than Beats a head with so many agents and each of these wait: thousands would keep it busy.
func More(n int) time.Duration { return min(2*Beats, max(0, time.Duration(n)*Beats/1666-Beats)) }

// EnvTalk is the environment variable with the file descriptor by which a process of a job speaks with its agent.
const EnvTalk = "LFACTOR_AGENT_FD"

// beat is what is said most, by thousands of agents some times a second: it is neither made nor read as JSON.
var beat = []byte(`{"k":"beat"}`)

// maxFrame is more than a run file and less than what would hurt.
const maxFrame = 16 << 20

// Conn carries messages: frames of JSON with their length before them.
type Conn struct {
	c  net.Conn
	r  *bufio.Reader
	mu sync.Mutex
}

// NewConn speaks over c; what was read of it already is in r, which may be nil.
func NewConn(c net.Conn, r *bufio.Reader) *Conn {
	if r == nil {
		r = bufio.NewReader(c)
	}
	return &Conn{c: c, r: r}
}

// Send writes a message. A peer that does not read within ten seconds loses the connection.
func (c *Conn) Send(m Message) error {
	text, err := beat, error(nil)
	if m.Kind != Beat || m.Info != nil {
		text, err = json.Marshal(m)
	}
	if err != nil {
		return err
	}
	if len(text) > maxFrame {
		return fmt.Errorf("a message of %d bytes, more than %d", len(text), maxFrame)
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.c.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, err = c.c.Write(append(b, text...))
	return err
}

// Receive reads the next message; with a limit, an error if nothing comes for so long. After an *Unbounded,
// which is no message, it can go on.
func (c *Conn) Receive(limit time.Duration) (m Message, err error) {
	if limit > 0 {
		err = c.c.SetReadDeadline(time.Now().Add(limit))
	} else {
		err = c.c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return m, err
	}
	var h [4]byte
	if _, err := io.ReadFull(c.r, h[:]); err != nil {
		return m, err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n > maxFrame {
		return m, fmt.Errorf("a frame of %d bytes, more than %d", n, maxFrame)
	}
	var text []byte
	if n <= 1<<16 {
		text = make([]byte, n)
		_, err = io.ReadFull(c.r, text)
	} else if text, err = io.ReadAll(io.LimitReader(c.r, int64(n))); err == nil && len(text) < int(n) {
		err = io.ErrUnexpectedEOF // memory grew with what came, not with what was announced
	}
	if err != nil {
		return m, err
	}
	if bytes.Equal(text, beat) {
		return Message{Kind: Beat}, nil
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("a frame that is no message: %w", err)
	}
	if err := m.Check(); err != nil {
		return Message{}, err
	}
	return m, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Remote is the address of the other end.
func (c *Conn) Remote() string { return c.c.RemoteAddr().String() }

// Local is the address of this end.
func (c *Conn) Local() string { return c.c.LocalAddr().String() }

// ErrSilent says that a message did not come in time.
var ErrSilent = errors.New("silent for too long")

// Why is an error of Receive in words.
func Why(err error) string {
	switch {
	case expired(err):
		return ErrSilent.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "the connection ended"
	}
	return err.Error()
}
