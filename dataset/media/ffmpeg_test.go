package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake is a video that only the fakes of ffprobe and ffmpeg below know: JSON in a file.
type fake struct {
	W, H, Packets, Frames int
	Rate, Says            string
	Hang                  bool
	More                  int // bytes at the end
}

// TestMain makes the test's binary play ffprobe and ffmpeg where it is called by their names.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if name != "ffmpeg" && name != "ffprobe" {
		os.Exit(m.Run())
	}
	args := strings.Join(os.Args[1:], " ")
	_, file, _ := strings.Cut(args,
		"-protocol_whitelist file -format_whitelist "+formats+" -max_pixels 89478485 -i file:")
	file, _, _ = strings.Cut(file, " ")
	b, err := os.ReadFile(file)
	var v fake
	if err != nil || json.Unmarshal(b, &v) != nil {
		fmt.Fprintln(os.Stderr, file+": Invalid data found\nwhen processing input")
		os.Exit(1)
	}
	fmt.Fprint(os.Stderr, v.Says)
	if name == "ffprobe" {
		v.probe(args)
	} else {
		v.decode(args)
	}
}

func (v fake) probe(args string) {
	count := fmt.Sprintf(`"nb_read_packets": "%d"`, v.Packets)
	if strings.Contains(args, "-count_frames") {
		count = fmt.Sprintf(`"nb_read_frames": "%d"`, v.Frames)
	}
	fmt.Printf(`{"streams": [{"width": %d, "height": %d, "avg_frame_rate": %q, %s}]}`, v.W, v.H,
		v.Rate, count)
}

// decode writes frames whose bytes are their number.
func (v fake) decode(args string) {
	if v.Hang {
		r, w, _ := os.Pipe()
		_, _ = r.Read(make([]byte, 1))
		defer w.Close()
	}
	for n := range v.Frames {
		if !strings.Contains(args, "select=") || strings.Contains(args+" ", fmt.Sprintf(`eq(n\,%d)`, n)) {
			os.Stdout.Write([]byte(strings.Repeat(string(rune('a'+n)), v.W*v.H*3)))
		}
	}
	os.Stdout.Write(make([]byte, v.More))
}

func fakes(t *testing.T, v any) (FFmpeg, string) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		require.NoError(t, os.Symlink(self, filepath.Join(dir, name)))
	}
	b, err := json.Marshal(v)
	require.NoError(t, err)
	file := filepath.Join(dir, "video.mp4")
	require.NoError(t, os.WriteFile(file, b, 0o600))
	return FFmpeg{Dir: dir}, file
}

// every takes frames of a stride.
type every struct {
	VideoProcessor
	stride int
}

func (e every) Pick(v VideoInfo) (out []int, err error) {
	for i := 0; i < v.Frames; i += e.stride {
		out = append(out, i)
	}
	return out, nil
}

// Frames come by number, whether ffmpeg or the reader leaves the others out.
func TestFFmpegPipe(t *testing.T) {
	f, file := fakes(t, fake{W: 3, H: 2, Packets: 10, Frames: 10, Rate: "30000/1001"})
	for stride, want := range map[int]string{1: "abcdefghij", 3: "adgj"} {
		c, err := f.Clip(context.Background(), file, every{stride: stride})
		require.NoError(t, err)
		require.Equal(t, 30000.0/1001, c.FPS)
		got := ""
		for i, p := range c.Frames {
			require.Equal(t, []int{3, 2, i * stride}, []int{p.W, p.H, c.At[i]})
			require.Equal(t, strings.Repeat(string(p.Pix[0]), 18), string(p.Pix))
			got += string(p.Pix[0])
		}
		require.Equal(t, want, got)
	}
	twice, err := f.Frames(context.Background(), file, VideoInfo{W: 3, H: 2}, []int{2, 2, 4})
	require.NoError(t, err)
	require.Same(t, twice[0], twice[1])
	require.Equal(t, byte('e'), twice[2].Pix[0])
}

// Where packets outnumber frames, the frames are counted and picked anew.
func TestFFmpegRecounts(t *testing.T) {
	f, file := fakes(t, fake{W: 1, H: 1, Packets: 10, Frames: 7, Rate: "2/1"})
	c, err := f.Clip(context.Background(), file, every{stride: 3})
	require.NoError(t, err)
	require.Equal(t, []int{0, 3, 6}, c.At)
}

// A video that cannot be had gives its name, the cause and the remedy.
func TestFFmpegRefuses(t *testing.T) {
	for want, v := range map[string]any{
		"only 1 of the 3 frames that were picked": fake{W: 1, H: 1, Packets: 3, Frames: 3, Rate: "1/1",
			Says: "moov atom is odd"},
		"frames are larger than the 1×1 pixels": fake{W: 1, H: 1, Packets: 3, Frames: 3, Rate: "1/1",
			More: 9},
		"its frames are 60000×60000 pixels":  fake{W: 60000, H: 60000, Packets: 3},
		"its frames are 0×5 pixels":          fake{H: 5, Packets: 3},
		"are over the limit of 99 bytes":     fake{W: 10, H: 10, Packets: 3},
		"took over 100ms":                    fake{W: 1, H: 1, Packets: 3, Frames: 3, Hang: true},
		"Invalid data found when processing": "no video",
	} {
		f, file := fakes(t, v)
		f.BytesMax = 99
		if v, ok := v.(fake); ok && v.Hang {
			f.Timeout = 100 * time.Millisecond
		}
		var p VideoProcessor = every{stride: 1}
		if v, ok := v.(fake); ok && v.Says != "" {
			p = tooMany{}
		}
		_, err := f.Clip(context.Background(), file, p)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "video "+file)
	}
	_, err := FFmpeg{Dir: t.TempDir()}.ClipBytes(context.Background(), []byte("x"), every{})
	require.ErrorContains(t, err, "ffprobe is not installed, and videos need it; install ffmpeg")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f, file := fakes(t, fake{W: 1, H: 1, Packets: 3, Frames: 3})
	_, err = f.Clip(ctx, file, every{stride: 1})
	require.True(t, errors.Is(err, context.Canceled), err)
}

// tooMany picks frames that are not there.
type tooMany struct{ VideoProcessor }

func (tooMany) Pick(VideoInfo) ([]int, error) { return []int{2, 8, 9}, nil }

// The real programs give the frames that were encoded without loss.
func TestFFmpegReal(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("skipped: ffmpeg is not installed")
	}
	b := readFile(t, "clip.mkv")
	c, err := FFmpeg{}.ClipBytes(context.Background(), b, every{stride: 3})
	require.NoError(t, err)
	require.Equal(t, 12.5, c.FPS)
	v, err := FFmpeg{}.ProbeBytes(context.Background(), b)
	require.NoError(t, err)
	require.Equal(t, VideoInfo{W: 32, H: 24, Frames: 10, FPS: 12.5}, v)
	all := scroll(10, 32, 24)
	require.Equal(t, []int{0, 3, 6, 9}, c.At)
	for i, n := range c.At {
		require.Equal(t, all[n].Pix, c.Frames[i].Pix)
	}
	_, err = FFmpeg{}.ClipBytes(context.Background(), []byte("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"),
		every{stride: 1})
	require.Error(t, err)
}
