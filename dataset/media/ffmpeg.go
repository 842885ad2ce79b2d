package media

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FFmpeg decodes videos through child processes of ffprobe and ffmpeg (5.1 or later). The zero value is ready.
type FFmpeg struct {
	Dir      string        // that the programs are in; "" looks them up in PATH
	Timeout  time.Duration // of each process; 0 means two minutes
	BytesMax int64         // of the frames of a clip; 0 means 2 GiB
}

const (
	videoTimeout  = 2 * time.Minute
	videoBytesMax = 2 << 30
	allocMax      = 1 << 30 // of one piece of ffmpeg's memory
	stderrMax     = 2 << 10
	probeMax      = 1 << 20
	selectMax     = 2048 // frames that a filter picks; more are picked here
)

// formats are containers that hold their own frames. Playlists, which name other files, are not among them.
const formats = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,ogg,asf,gif"

// Clip decodes the frames of a video file that a processor picks.
func (f FFmpeg) Clip(ctx context.Context, file string, p VideoProcessor) (*Clip, error) {
	c, err := f.clip(ctx, file, p, "-count_packets")
	var short *shortError
	if errors.As(err, &short) { // some packets have no frame of their own; their number needs decoding
		c, err = f.clip(ctx, file, p, "-count_frames")
	}
	if err != nil {
		return nil, fmt.Errorf("video %s: %w", file, err)
	}
	return c, nil
}

// ClipBytes is Clip for a video in memory. Moving GIFs need no ffmpeg.
func (f FFmpeg) ClipBytes(ctx context.Context, b []byte, p VideoProcessor) (c *Clip, err error) {
	if Moves(b) {
		return f.gifClip(ctx, b, p)
	}
	err = asFile(b, func(file string) error {
		c, err = f.Clip(ctx, file, p)
		return err
	})
	return c, err
}

// ProbeBytes is Probe for a video in memory.
func (f FFmpeg) ProbeBytes(ctx context.Context, b []byte) (v VideoInfo, err error) {
	if Moves(b) {
		return gifInfo(b), nil
	}
	err = asFile(b, func(file string) error {
		v, err = f.Probe(ctx, file)
		return err
	})
	return v, err
}

// asFile writes a video to a temporary file for as long as use runs: its index may be at its end, where
// pipes are no help.
func asFile(b []byte, use func(file string) error) error {
	t, err := os.CreateTemp("", "lfactor-video-*")
	if err != nil {
		return err
	}
	_, err = t.Write(b)
	if err = errors.Join(err, t.Close()); err == nil {
		err = use(t.Name())
	}
	return errors.Join(err, os.Remove(t.Name()))
}

// clip decodes those frames of a video that the processor picks.
func (f FFmpeg) clip(ctx context.Context, file string, p VideoProcessor, count string) (*Clip, error) {
	v, err := f.probe(ctx, file, count)
	if err != nil {
		return nil, err
	}
	at, err := p.Pick(v)
	if err != nil {
		return nil, err
	}
	frames, err := f.Frames(ctx, file, v, at)
	return &Clip{Frames: frames, At: at, FPS: v.FPS, Of: v.Frames}, err
}

// Probe reads a video's size, rate and number of frames.
func (f FFmpeg) Probe(ctx context.Context, file string) (VideoInfo, error) {
	v, err := f.probe(ctx, file, "-count_packets")
	if err != nil {
		return v, fmt.Errorf("video %s: %w", file, err)
	}
	return v, nil
}

// stream is what ffprobe says of a video stream.
type stream struct {
	Width, Height int
	Rate          string                       `json:"avg_frame_rate"`
	Packets       string                       `json:"nb_read_packets"`
	Frames        string                       `json:"nb_read_frames"`
	Side          []struct{ Rotation float64 } `json:"side_data_list"`
}

// probe asks for size, rate and number of frames. A rotation by a quarter turn swaps width and
// height, since frames come out turned.
func (f FFmpeg) probe(ctx context.Context, file, count string) (v VideoInfo, err error) {
	s, _, err := f.ask(ctx, file, probeMax, count, "-show_entries", shown)
	if err != nil {
		return v, err
	}
	return s.info()
}

// shown are the entries of a stream that probe asks for.
const shown = "stream=width,height,avg_frame_rate,nb_read_packets,nb_read_frames:stream_side_data=rotation"

// ask has ffprobe tell of the first video stream, and of its packets where the arguments want them, in so many
// bytes at most.
func (f FFmpeg) ask(ctx context.Context, file string, most int64, args ...string) (s stream, p []packet, err error) {
	all := slices.Concat([]string{"-v", "error", "-select_streams", "v:0"}, args, []string{"-of", "json"}, source(file))
	var out []byte
	err = f.run(ctx, "ffprobe", all, func(r io.Reader) (err error) {
		out, err = io.ReadAll(io.LimitReader(r, most))
		return err
	})
	if err != nil {
		return s, nil, err
	}
	var list struct {
		Streams []stream
		Packets []packet
	}
	if err := json.Unmarshal(out, &list); err != nil || len(list.Streams) == 0 {
		return s, nil, errors.New("it has no video stream")
	}
	return list.Streams[0], list.Packets, nil
}

// info is what is said of the stream, in numbers.
func (s stream) info() (v VideoInfo, err error) {
	v = VideoInfo{W: s.Width, H: s.Height, FPS: fraction(s.Rate)}
	for _, side := range s.Side {
		if turn := int(side.Rotation); turn%180 != 0 && turn%90 == 0 {
			v.W, v.H = v.H, v.W
		}
	}
	v.Frames, _ = strconv.Atoi(s.Packets) // containers may not say; 0 counts them by decoding
	if n, err := strconv.Atoi(s.Frames); err == nil {
		v.Frames = n
	}
	if v.W < 1 || v.H < 1 || int64(v.W)*int64(v.H) > PixelsMax {
		return v, fmt.Errorf("its frames are %d×%d pixels; up to %d can be taken", v.W, v.H, PixelsMax)
	}
	return v, nil
}

// fraction reads "30000/1001"; 0 where it makes no sense.
func fraction(s string) float64 {
	a, b, ok := strings.Cut(s, "/")
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	if !ok || err != nil || err2 != nil || x <= 0 || y <= 0 {
		return 0
	}
	return x / y
}

// source is the part of the arguments that reads a file, and nothing else.
func source(file string) []string {
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	return []string{"-protocol_whitelist", "file", "-format_whitelist", formats, "-max_pixels",
		strconv.Itoa(PixelsMax), "-i", "file:" + file}
}

// shortError is a video with fewer frames than it says.
type shortError struct{ have, want int }

func (e *shortError) Error() string {
	return fmt.Sprintf("only %d of the %d frames that were picked can be decoded; the video is damaged", e.have, e.want)
}

// Frames decodes the frames of some numbers, in ascending order, as RGB and upright.
func (f FFmpeg) Frames(ctx context.Context, file string, v VideoInfo, at []int) ([]*Image, error) {
	most := f.BytesMax
	if most == 0 {
		most = videoBytesMax
	}
	size := int64(v.W) * int64(v.H) * 3
	switch {
	case len(at) == 0 || !slices.IsSorted(at) || at[0] < 0:
		return nil, fmt.Errorf("frames %v are no ascending numbers", at)
	case size < 3 || size > most/int64(len(at)):
		return nil, fmt.Errorf("%d frames of %d×%d pixels are over the limit of %d bytes; sample fewer",
			len(at), v.W, v.H, most)
	}
	args := append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-threads", "1", "-max_alloc",
		strconv.Itoa(allocMax)}, source(file)...)
	args = append(args, "-map", "0:v:0", "-an", "-sn", "-dn", "-fps_mode", "passthrough", "-frames:v",
		strconv.Itoa(passed(at)))
	if filtered(at) {
		args = append(args, "-vf", selection(at))
	}
	args = append(args, "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1")
	var out []*Image
	err := f.run(ctx, "ffmpeg", args, func(r io.Reader) (err error) {
		out, err = readFrames(r, v, at)
		return err
	})
	return out, err
}

// filtered tells whether ffmpeg leaves frames out, which saves the way through the pipe.
func filtered(at []int) bool { return at[len(at)-1] != len(at)-1 && len(at) <= selectMax }

// passed is how many frames come through the pipe.
func passed(at []int) int {
	if filtered(at) {
		return len(slices.Compact(slices.Clone(at)))
	}
	return at[len(at)-1] + 1
}

// selection is a filter that passes frames of some numbers.
func selection(at []int) string {
	terms := make([]string, 0, len(at))
	for _, n := range slices.Compact(slices.Clone(at)) {
		terms = append(terms, fmt.Sprintf(`eq(n\,%d)`, n))
	}
	return "select=" + strings.Join(terms, "+")
}

// readFrames reads what passed counted. A number that is there twice gives the same frame twice.
func readFrames(r io.Reader, v VideoInfo, at []int) (out []*Image, err error) {
	dense := filtered(at)
	all := slices.Compact(slices.Clone(at))
	for n := range passed(at) {
		if dense {
			n = all[n]
		}
		p := bare(v.W, v.H)
		if _, err := io.ReadFull(r, p.Pix); err != nil {
			return nil, &shortError{len(out), len(at)}
		}
		for len(out) < len(at) && at[len(out)] == n {
			out = append(out, p)
		}
	}
	if n, _ := r.Read(make([]byte, 1)); n > 0 { // an end is what is looked for
		return nil, fmt.Errorf("frames are larger than the %d×%d pixels that the video announces", v.W, v.H)
	}
	return out, nil
}

// run starts a program without a shell and hands its output to read; what it says of errors is quoted.
func (f FFmpeg) run(ctx context.Context, name string, args []string, read func(r io.Reader) error) error {
	limit := f.Timeout
	if limit == 0 {
		limit = videoTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	program := name
	if f.Dir != "" {
		program = filepath.Join(f.Dir, name)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var said tail
	cmd.Stderr, cmd.WaitDelay = &said, time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is not installed, and videos need it; install ffmpeg 5.1 or later "+
			"(apt-get install ffmpeg), which AVIF, HEIC and JPEG 2000 want too, or leave them out", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	failed := read(out)
	if failed != nil {
		cancel()
	}
	ended := cmd.Wait()
	switch {
	case failed == nil && ended == nil:
		return nil
	case ctx.Err() == context.DeadlineExceeded:
		return fmt.Errorf("%s took over %v; the video is too long or damaged", name, limit)
	case said.b.Len() > 0 && failed != nil:
		return fmt.Errorf("%w (%s: %s)", failed, name, said.text())
	case failed != nil:
		return failed
	case said.b.Len() > 0:
		return fmt.Errorf("%s: %s", name, said.text())
	}
	return fmt.Errorf("%s: %w", name, ended)
}

// tail keeps the beginning of what a program says.
type tail struct{ b bytes.Buffer }

// Write implements io.Writer and never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.b.Write(p[:min(len(p), stderrMax-min(t.b.Len(), stderrMax))])
	return len(p), nil
}

func (t *tail) text() string { return strings.Join(strings.Fields(t.b.String()), " ") }
