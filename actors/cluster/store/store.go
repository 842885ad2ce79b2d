// Package store is where a cluster's state lies: membership, jobs, placements and the log of events. [Store]
// and [Term] are what a head needs of it; package etcd keeps it on disk, of one member or several, and
// [Memory] in memory for tests and for the simulator. Package storetest has the suite that both pass.
//
// A head writes in a [Term], which begins with a revision of its own. Every write names the term and is
// refused when another has begun since, so that of two heads that both believe to lead one changes nothing.
// That is the store's one compare-and-set: within a term one head writes, one commit after the other.
package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrOver is returned where another head leads by now. In the words of the field: leader election.
var ErrOver = errors.New("another head leads the cluster by now")

// Store is a member of what keeps the state of a cluster. Its methods are safe for concurrent use.
type Store interface {
	// Lead begins a term, which ends all terms before it. Name is who leads.
	Lead(name string) (Term, error)
	// Leads reports whether this member leads the others; one alone always does.
	Leads() bool
	// Leader is the name of the member that leads, "" while none does.
	Leader() string
	// Failed is closed when the member has ended by itself, as after an error of its disk: the process has
	// to end, and to start again from what is written.
	Failed() <-chan struct{}
	// Close ends the member; its data stay. One that leads hands the lead over before.
	Close()
	// CloseAll ends the member where all others end too: none is left that could take the lead over.
	CloseAll()
}

// Op sets a key to a value, or removes it where the value is nil. Both can be done twice: a commit whose
// answer was lost is repeated as it was.
type Op struct {
	Key   string
	Value []byte
}

// Term is the time in which one head decides. Its methods are safe for concurrent use.
type Term interface {
	// Number is the term's: it is larger than that of any term before it, and than any revision of them.
	Number() int64
	// Over is closed when a write was refused because another term has begun.
	Over() <-chan struct{}
	// End lets go of the term: what still waits for the store fails, and so does what is asked later.
	End()
	// Commit carries out all operations at once or none, and returns the revision of the change, which no
	// other change has. No key stands among them twice. It fails with ErrOver if this term is not the
	// newest. After any other error all operations may have been carried out or none.
	Commit(ops []Op) (int64, error)
	// List calls see with each key below a prefix, without it, in order, and its value.
	List(prefix string, see func(key string, value []byte) error) error
	// Backup writes a snapshot of the state.
	Backup(w io.Writer) error
	// Replace makes room for a member without data at the address of one that has lost its own. The lost one is not a
	// member any more, because it has voted for what nobody may forget; the new one does not vote before Promote.
	Replace(p Peer) error
	// Promote lets a member vote that Replace has made room for, once it has the data of the others.
	Promote(p Peer) error
}

// Peer is a member of a store that has several.
type Peer struct {
	Name string
	Addr string // host:port at which the other members reach it
}

// Options are those of a member's opening.
type Options struct {
	Dir string // of its data; made if missing
	Log string // file that the store's own warnings go to
	// Peers are all members, of which this one is called Name; none for a store of one member.
	Peers []Peer
	Name  string
	Joins bool // it takes the place of a member that has lost its data: see Term.Replace
	// Identity is the directory with the certificate of this head, by which members know each other.
	Identity string
	Owner    string          // the name in the certificates of all members
	Ended    <-chan struct{} // closed when nobody waits for the store any more; may be nil
}

// TermFile is a file beside a member's data with the number of the newest term that it has begun: a state that
// is restored begins behind it.
const TermFile = "term"

// LastTerm is the newest term that a member with its data in dir has begun; 0 where none is known.
func LastTerm(dir string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, TermFile))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Limits of one commit. A head puts less into one, and refuses a job that would not go into one alone.
const (
	MostOps   = 4096
	MostBytes = 24 << 20
)
