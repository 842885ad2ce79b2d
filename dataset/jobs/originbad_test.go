package jobs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A place that does not answer says nothing of what lies there: it does not end the data set.
func TestFollowOutage(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	put(t, list, "a.jsonl\n", 1)
	put(t, filepath.Join(dir, "a.jsonl"), whole, 1)
	f := follow(t, FollowConfig{Pattern: list, From: "list"})
	f.look(0)
	require.Len(t, f.from(), 1)
	f.look(1)
	require.False(t, f.alive(false), "nothing has come")
	require.NoError(t, os.Rename(list, list+".away"))
	f.look(2)
	require.True(t, f.alive(false))
	require.NoError(t, os.Rename(list+".away", list))
	f.look(3)
	require.False(t, f.alive(false))
	b := serveBucket(t)
	put(t, list, "a.jsonl\ns3://lake/b.jsonl\n", 2)
	f.look(4)
	require.False(t, f.alive(false), "the store says that it is not there")
	b.down = true
	f.look(5)
	require.True(t, f.alive(false))
	b.down = false
	b.put("b.jsonl", whole)
	f.look(6)
	require.Len(t, f.from(), 2)
	require.False(t, f.alive(false))
}

// An address whose server tells neither ETag nor date is taken, and what it asks for, which may be long and secret,
// is in no name, ledger or note. A folder that cannot be written is an error, and no matter of the place.
func TestFollowAddress(t *testing.T) {
	t.Setenv("LFACTOR_CACHE", t.TempDir())
	text := whole
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	}))
	defer s.Close()
	t.Setenv("LFACTOR_HTTP_PRIVATE", "1")
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	secret := strings.Repeat("SECRET", 60)
	put(t, list, fmt.Sprintf("%s/a.jsonl?sig=%s\n", s.URL, secret), 1)
	f := follow(t, FollowConfig{Pattern: list, From: "list"})
	f.look(0)
	f.look(1)
	require.Empty(t, f.said)
	require.Len(t, f.from(), 1)
	require.Regexp(t, `/a\.jsonl#[0-9a-f]{16}$`, f.from()[0])
	require.FileExists(t, filepath.Join(f.out, "shards", "000000-a.jsonl"))
	text = whole + "{\"te"
	put(t, list, fmt.Sprintf("%s/a.jsonl?sig=%s\n%s/torn.jsonl?sig=%s\n", s.URL, secret, s.URL, secret), 2)
	f.look(2)
	require.Contains(t, f.quarantined(), "/torn.jsonl#")
	require.NotContains(t, f.quarantined()+fmt.Sprint(f.from(), f.said), "SECRET")
	f.Close()
	again, err := NewFollower(FollowConfig{Pattern: list, From: "list", Output: f.out})
	require.NoError(t, err)
	defer again.Close()
	f.Follower = again
	f.look(3)
	require.Len(t, f.from(), 1, "it is known by its ledger")
	require.Equal(t, "here.jsonl.gz", baseName("/a/here.jsonl.gz"))
	require.Equal(t, strings.Repeat("x", baseMax-6)+".jsonl", baseName(strings.Repeat("x", 300)+".jsonl"))

	put(t, list, fmt.Sprintf("%s/a.jsonl?sig=%s\n%s/torn.jsonl?sig=%s\n%s/b.jsonl\n", s.URL, secret, s.URL,
		secret, s.URL), 3)
	text = whole
	require.NoError(t, os.RemoveAll(filepath.Join(f.out, "shards")))
	_, err = f.Look(time.Unix(1004, 0))
	require.ErrorContains(t, err, "no such file or directory")
	require.Empty(t, f.said)
}

// A ticket that is bad, or whose shard cannot be read, stops no other; one with two objects is none, and one
// that names a shard anew that was taken with other content is set aside.
func TestFollowBadTickets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mtime int64) { put(t, filepath.Join(dir, name), text, mtime) }
	for _, n := range []string{"a", "b", "c", "d"} {
		write(n+".jsonl", whole, 1)
	}
	require.NoError(t, os.Symlink("loop.jsonl", filepath.Join(dir, "loop.jsonl")))
	write("1.json", `{"path": "a.jsonl/x"}`, 1)
	write("2.json", `{"path": "`+strings.Repeat("y", 300)+`"}`, 1)
	write("3.json", `{"path": "loop.jsonl"}`, 1)
	write("4.json", "{\"path\": \"a.jsonl\"}\n{\"path\": \"b.jsonl\"}", 1)
	write("5.json", `{"path": "c.jsonl"}`, 1)
	run := filepath.Join(dir, "run", "samples.bin")
	f := follow(t, FollowConfig{Pattern: filepath.Join(dir, "*.json"), From: "queue", Ahead: 5,
		Consumers: []string{run}})
	f.look(0)
	f.look(1)
	require.Equal(t, []string{filepath.Join(dir, "c.jsonl")}, f.from())
	for _, want := range []string{"a.jsonl/x: not a directory", "file name too long",
		"too many levels of symbolic links", "4.json: more stands behind its JSON object"} {
		require.Contains(t, f.quarantined(), want)
	}
	require.FileExists(t, filepath.Join(dir, "4.json"))
	c, err := ReadCredits(f.out)
	require.NoError(t, err)
	for _, n := range []string{"1.json", "2.json", "3.json"} {
		require.NoError(t, os.Remove(filepath.Join(dir, n)))
	}
	write("4.json", `{"path": "a.jsonl"}`, 2)
	f.look(2)
	c, err = ReadCredits(f.out)
	require.NoError(t, err)
	require.Equal(t, int64(2), c.Taken)
	require.Equal(t, int64(3), c.Lost, "three shards that could not be read, and no ticket")

	write("6.json", `{"path": "c.jsonl"}`, 3) // the same again
	f.look(3)
	require.NoFileExists(t, filepath.Join(dir, "6.json"))
	write("c.jsonl", whole+whole, 4)
	write("7.json", `{"path": "c.jsonl", "bytes": 56}`, 4)
	write("a.jsonl", strings.Replace(whole, "a", "b", 1), 4)
	write("8.json", fmt.Sprintf(`{"path": "a.jsonl", "sha256": %q}`, sumOf("other")), 4)
	f.look(4)
	require.FileExists(t, filepath.Join(dir, "7.json.refused"))
	require.FileExists(t, filepath.Join(dir, "8.json.refused"))
	require.Contains(t, f.quarantined(), "it was taken before with 28 bytes, and a ticket says that it has 56")
	require.Contains(t, f.quarantined(), "it was taken before with the SHA-256 "+sumOf(whole))
	write("9.json", fmt.Sprintf(`{"path": "a.jsonl", "sha256": %q}`, sumOf(whole)), 4)
	f.look(5)
	require.NoFileExists(t, filepath.Join(dir, "9.json"), "it names what was taken")
	f.Close()
	again, err := NewFollower(FollowConfig{Pattern: f.cfg.Pattern, From: "queue", Ahead: 5,
		Consumers: []string{run}, Output: f.out})
	require.NoError(t, err)
	defer again.Close()
	require.Equal(t, int64(3), again.lost())
}

// Of a list's shards so many are asked for as there are credits for whole ones, and those that cannot be used
// stand in the way of none.
func TestFollowListCredits(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	put(t, list, "torn.jsonl\nlate.jsonl\na.jsonl\nb.jsonl\nc.jsonl\n", 1)
	put(t, filepath.Join(dir, "torn.jsonl"), "{\"te", 1)
	for _, n := range []string{"a", "b", "c"} {
		put(t, filepath.Join(dir, n+".jsonl"), whole, 1)
	}
	f := follow(t, FollowConfig{Pattern: list, From: "list", Ahead: 1,
		Consumers: []string{filepath.Join(dir, "run", "samples.bin")}})
	for i := range int64(4) {
		f.look(i)
	}
	require.Equal(t, []string{filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")}, f.from())
	require.Equal(t, 2, f.Report().Held, "nobody asks whether late.jsonl is there")
	offers, err := f.origin.offers(func(string) bool { return false }, 1)
	require.NoError(t, err)
	require.False(t, offers[0].unasked)
	require.True(t, offers[1].unasked)
	require.Len(t, offers, 5)
}

// A list in a store names no file of the host that follows: whoever may write to the store would have it copied.
func TestFollowListAbroad(t *testing.T) {
	b := serveBucket(t)
	for _, path := range []string{"/etc/x.jsonl", "../x.jsonl", "a/../../x.jsonl"} {
		b.put("in/list", path+"\n")
		f := follow(t, FollowConfig{Pattern: "s3://lake/in/list", From: "list"})
		_, err := f.Look(time.Unix(1000, 0))
		require.ErrorContains(t, err, "s3://lake/in/list, shard 1: it names "+path+", and a list in a store "+
			"names shards below its own folder")
	}
	b.put("in/list", "sub/x.jsonl\n")
	b.put("in/sub/x.jsonl", whole)
	f := follow(t, FollowConfig{Pattern: "s3://lake/in/list", From: "list"})
	f.look(0)
	require.Equal(t, []string{"s3://lake/in/sub/x.jsonl"}, f.from())
}

// A list that shrank, or whose lines have changed, while nobody followed it ends the next follower; one that
// has grown does not.
func TestFollowListAgain(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	put(t, list, "a.jsonl\nlate.jsonl\n", 1)
	for _, name := range []string{"a.jsonl", "b.jsonl"} {
		put(t, filepath.Join(dir, name), whole, 1)
	}
	c := FollowConfig{Pattern: list, From: "list"}
	f := follow(t, c)
	f.look(0)
	require.Len(t, f.from(), 1)
	f.Close()
	c.Output = f.out
	look := func(text string) error {
		put(t, list, text, 2)
		again, err := NewFollower(c)
		require.NoError(t, err)
		defer again.Close()
		_, err = again.Look(time.Unix(1010, 0))
		return err
	}
	require.ErrorContains(t, look("b.jsonl\n"), "it has 8 bytes of lines and had 19: a list only grows")
	require.ErrorContains(t, look("b.jsonl\nlate.jsonl\n"), "its first 2 lines are not what they were")
	require.NoError(t, look("a.jsonl\nlate.jsonl\nb.jsonl\n"))
	require.ErrorContains(t, look("a.jsonl\nlate.jsonl\n"), "it has 19 bytes of lines and had 27")
	put(t, filepath.Join(f.out, listRecord), "{", 3)
	require.ErrorContains(t, look("a.jsonl\nlate.jsonl\nb.jsonl\n"), "list.json: ")
}
