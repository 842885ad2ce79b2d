package jobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// bucketServer is a store with one bucket.
type bucketServer struct {
	mu      sync.Mutex
	objects map[string]string
	version map[string]int
	down    bool
}

func (b *bucketServer) put(key, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[key], b.version[key] = text, b.version[key]+1
}

func (b *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	if r.URL.Query().Get("list-type") == "2" {
		type object struct {
			Key, ETag string
			Size      int
		}
		var page struct {
			XMLName  xml.Name `xml:"ListBucketResult"`
			Contents []object
		}
		for key, text := range b.objects {
			if strings.HasPrefix(key, r.URL.Query().Get("prefix")) {
				page.Contents = append(page.Contents, object{key, fmt.Sprintf(`"%d"`, b.version[key]), len(text)})
			}
		}
		slices.SortFunc(page.Contents, func(a, b object) int { return strings.Compare(a.Key, b.Key) })
		_ = xml.NewEncoder(w).Encode(page)
		return
	}
	key := strings.TrimPrefix(r.URL.Path, "/lake/")
	text, ok := b.objects[key]
	if !ok {
		http.Error(w, "no", http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, b.version[key]))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(text)))
}

// serveBucket starts a store that s3:// leads to.
func serveBucket(t *testing.T) *bucketServer {
	b := &bucketServer{objects: map[string]string{}, version: map[string]int{}}
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	t.Setenv("AWS_ENDPOINT_URL", s.URL)
	t.Setenv("LFACTOR_CACHE", t.TempDir())
	return b
}

// followed is a follower under test.
type followed struct {
	*Follower
	t    *testing.T
	said []string
	out  string
}

func follow(t *testing.T, c FollowConfig) *followed {
	t.Helper()
	f := &followed{t: t, out: filepath.Join(t.TempDir(), "out")}
	c.Output = f.out
	c.Say = func(note string) { f.said = append(f.said, note) }
	var err error
	f.Follower, err = NewFollower(c)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

func (f *followed) look(second int64) {
	f.t.Helper()
	_, err := f.Look(time.Unix(1000+second, 0))
	require.NoError(f.t, err)
}

// quarantined is what is told of the shards that were not taken.
func (f *followed) quarantined() string {
	b, err := os.ReadFile(filepath.Join(f.out, quarantineName))
	if err != nil {
		return ""
	}
	return string(b)
}

// from are the shards of the ledger, by where they came from.
func (f *followed) from() (out []string) {
	list, _, err := dataset.ReadManifest(f.manifest())
	if err != nil {
		return nil
	}
	for _, g := range list {
		for _, s := range g.Shards {
			out = append(out, s.From)
		}
	}
	return out
}

// Objects of a store are taken as files are: whole by their marker or when their ETag stays, once; what is replaced,
// torn or removed is told of. A store that does not answer for a while is looked at again.
func TestFollowStore(t *testing.T) {
	b := serveBucket(t)
	f := follow(t, FollowConfig{Pattern: "s3://lake/in/*.jsonl", Settle: 2 * time.Second})
	b.put("in/a.jsonl", whole)
	b.put("other/x.jsonl", whole)
	b.put("in/sub/y.jsonl", whole)
	f.look(0)
	require.Empty(t, f.from(), "it has not settled")
	b.put("in/a.jsonl", whole+whole)
	f.look(2)
	require.Empty(t, f.from(), "it has changed")
	f.look(4)
	require.Equal(t, []string{"s3://lake/in/a.jsonl"}, f.from())
	got, err := os.ReadFile(filepath.Join(f.out, "shards", "000000-a.jsonl"))
	require.NoError(t, err)
	require.Equal(t, whole+whole, string(got))
	b.put("in/b.jsonl", whole+"{\"text\": \"tor")
	b.put("in/c.jsonl", whole)
	f.look(5)
	b.mu.Lock()
	delete(b.objects, "in/c.jsonl")
	b.mu.Unlock()
	b.put("in/a.jsonl", whole+whole) // the same bytes, another version
	f.look(8)
	require.Contains(t, f.quarantined(), `b.jsonl","bytes":41,"changed":0,"reason":"its last document cannot be read`)
	require.Contains(t, f.quarantined(), `"s3://lake/in/c.jsonl","bytes":28,"changed":0,"reason":"it was removed before it was taken"`)
	require.Contains(t, f.quarantined(), `"reason":"it was changed after it was taken; put what is new under a new name"`)
	b.mu.Lock()
	b.down = true
	b.mu.Unlock()
	f.look(9)
	f.look(10)
	require.Len(t, f.said, 1, "once")
	require.Regexp(t, `s3://lake/in/.*403 Forbidden.*; it is looked at again`, f.said[0])
	b.mu.Lock()
	b.down = false
	b.mu.Unlock()
	b.put("in/b.jsonl", whole+"{\"text\": \"torn no more\"}\n")
	f.look(11)
	f.look(13)
	require.Equal(t, []string{"s3://lake/in/a.jsonl", "s3://lake/in/b.jsonl"}, f.from())

	m := follow(t, FollowConfig{Pattern: "s3://lake/in/*.jsonl", Marker: ".done"})
	m.look(0)
	m.look(9)
	require.Empty(t, m.from())
	b.put("in/b.jsonl.done", "")
	m.look(10)
	require.Equal(t, []string{"s3://lake/in/b.jsonl"}, m.from())
	b.down = true
	n, err := NewFollower(FollowConfig{Pattern: "s3://lake/in/*.jsonl", Output: filepath.Join(t.TempDir(),
		"n")})
	require.NoError(t, err)
	defer n.Close()
	_, err = n.Look(time.Unix(1, 0))
	require.ErrorContains(t, err, "403 Forbidden", "a store that has never answered is no store")
}

func sumOf(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// A list that grows names shards, on disk and in stores: late ones are waited for, those of other sizes or sums are
// told of, and a list that has shrunk or has other lines than it had ends the follower with its place.
func TestFollowList(t *testing.T) {
	b := serveBucket(t)
	dir := t.TempDir()
	list := filepath.Join(dir, "shards.txt")
	write := func(name, text string) { put(t, filepath.Join(dir, name), text, 1) }
	write("a.jsonl", whole)
	write("shards.txt", "# what the producer has made\na.jsonl\ns3://lake/b.jsonl\n"+`{"path": "late.jsonl", "bytes": 28}`+"\nc.js")
	b.put("b.jsonl", whole)
	f := follow(t, FollowConfig{Pattern: list, From: "list", Shards: 2})
	f.look(0)
	require.Equal(t, []string{filepath.Join(dir, "a.jsonl"), "s3://lake/b.jsonl"}, f.from())
	require.Contains(t, f.quarantined(), "shards.txt, shard 3 names it, and it cannot be read")
	write("late.jsonl", whole[:14])
	f.look(1)
	require.Contains(t, f.quarantined(),
		"shard 3 says that it has 28 bytes, and it has 14: it is half written, or another one")
	write("late.jsonl", whole)
	write("shards.txt", "# what the producer has made\na.jsonl\ns3://lake/b.jsonl\n"+`{"path": "late.jsonl", "bytes": 28}`+"\n"+
		fmt.Sprintf("{\"path\": \"d.jsonl\", \"sha256\": %q}\n{\"path\": \"e.jsonl\", \"sha256\": %q}\n",
			sumOf("other"), sumOf(whole)))
	write("d.jsonl", whole)
	write("e.jsonl", whole)
	f.look(2)
	f.look(3)
	require.Equal(t, []string{filepath.Join(dir, "late.jsonl"), filepath.Join(dir, "e.jsonl")}, f.from()[2:])
	require.Contains(t, f.quarantined(), "its SHA-256 is "+sumOf(whole)+", and "+sumOf("other")+" was said")
	text, err := os.ReadFile(list)
	require.NoError(t, err)
	for wrong, want := range map[string]string{
		string(text[:40]): "a list only grows; put back what was in it",
		strings.Replace(string(text), "a.jsonl", "x.jsonl", 1):   "its first 6 lines are not what they were",
		string(text) + "{\"path\": 3}\n":                         "shard 6: json: cannot unmarshal number",
		string(text) + "{\"path\": \"y\", \"size\": 3}\n":        `shard 6: json: unknown field "size"`,
		string(text) + "a.jsonl\n":                               "shard 6: shard 1 names it too",
		string(text) + "{\"path\": \"y\", \"sha256\": \"zz\"}\n": "its sha256 is not 64 hexadecimal digits",
	} {
		write("shards.txt", wrong)
		_, err = f.Look(time.Unix(2000, 0))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "shards.txt")
	}
	_, err = NewFollower(FollowConfig{Pattern: list, From: "list", Marker: ".done",
		Output: filepath.Join(dir, "o")})
	require.ErrorContains(t, err, "a marker is of files")
	_, err = NewFollower(FollowConfig{Pattern: list, From: "nowhere", Output: filepath.Join(dir, "o")})
	require.ErrorContains(t, err, "they come from files, list, queue")
	_, err = NewFollower(FollowConfig{Pattern: "https://host/*.jsonl", Output: filepath.Join(dir, "o")})
	require.ErrorContains(t, err, "https has no lists of files; write one of them and follow it from list")
}

// Tickets go when their shards are in the ledger, and not before: a follower that was killed in between takes the shard
// again. One whose shard cannot be used is set aside, and one that is half written is waited for.
func TestFollowQueue(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { put(t, filepath.Join(dir, name), text, 1) }
	tickets := func() (names []string) {
		files, err := filepath.Glob(filepath.Join(dir, "*.ticket*"))
		require.NoError(t, err)
		for _, f := range files {
			names = append(names, filepath.Base(f))
		}
		return names
	}
	write("a.jsonl", whole)
	write("b.jsonl", whole)
	write("torn.jsonl", whole+"{\"te")
	write("1.ticket", `{"path": "a.jsonl", "bytes": 28}`)
	c := FollowConfig{Pattern: filepath.Join(dir, "*.ticket"), From: "queue", Shards: 2}
	f := follow(t, c)
	f.look(0)
	require.Equal(t, 1, f.Report().Waiting)
	require.Equal(t, []string{"1.ticket"}, tickets(), "its shard is in no generation yet")
	f.Close() // and is killed
	f2, err := NewFollower(FollowConfig{Pattern: c.Pattern, From: c.From, Shards: 2, Output: f.out})
	require.NoError(t, err)
	defer f2.Close()
	f.Follower = f2
	f.look(1)
	write("2.ticket", `{"path": "to`)
	write("3.ticket", `{"path": "b.jsonl"}`)
	write("4.ticket", `{"path": "a.jsonl"}`) // the same shard again
	f.look(2)
	require.Equal(t, []string{filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")}, f.from())
	require.Equal(t, []string{"2.ticket"}, tickets())
	require.Contains(t, f.quarantined(), "2.ticket: unexpected EOF")
	write("2.ticket", `{"path": "torn.jsonl"}`)
	f.look(3)
	f.look(4)
	require.Equal(t, []string{"2.ticket.refused"}, tickets())
	require.Contains(t, f.quarantined(), "torn.jsonl")
	require.NotContains(t, f.quarantined(), "it was removed",
		"tickets that were refused or done are not lost")
	require.NoError(t, f.End())
}

// FuzzNamed: whatever stands in a line or a ticket names a shard with a place, or is an error that says
// where it stands.
func FuzzNamed(f *testing.F) {
	for _, s := range []string{"a.jsonl", `{"path":"s3://b/k","bytes":3}`, `{"path":""}`, "{", `{"path":"a","bytes":-1}`, "\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseNamed(text, "/in/list.txt", "here")
		switch {
		case err != nil:
			require.ErrorContains(t, err, "here: ")
		default:
			require.NotEmpty(t, n.shard)
		}
	})
}
