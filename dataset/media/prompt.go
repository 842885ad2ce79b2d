package media

import (
	"fmt"
	"strings"
)

// Prompt is what a conversation says in place of the mark of a video or an image.
type Prompt struct {
	// the text that gives way, the template's own around the token included; "" where only tokens change
	Mark   string
	Text   string   // that comes instead, with Token once for each frame
	Token  string   // that stands for a feature; "" for the one that the template writes
	Frames int      // runs of tokens
	Each   int      // tokens of a run
	Needs  []string // special tokens that the text has
}

// VideoWriter is a VideoProcessor that knows how its model's prompts show videos. Source:
// replace_video_token of transformers' processors.
type VideoWriter interface {
	// Prompt is that of a video of which the frames at were taken, which makes e.
	Prompt(v VideoInfo, at []int, e Extent) Prompt
}

// ImageWriter is an ImageProcessor whose model's prompts have text around images.
type ImageWriter interface {
	// ImagePrompt is that of an image which makes e.
	ImagePrompt(e Extent) Prompt
}

// one is a prompt whose tokens follow each other, without any text.
func one(e Extent) Prompt { return Prompt{Frames: 1, Each: e.Tokens} }

// Prompt implements VideoWriter.
func (q *qwen2Video) Prompt(_ VideoInfo, _ []int, e Extent) Prompt { return one(e) }

// Prompt implements VideoWriter: each row of the grid in time begins with its time.
func (q *qwen3Video) Prompt(v VideoInfo, at []int, e Extent) Prompt {
	return timed(v, at, e, q.time)
}

// Prompt implements VideoWriter. Images of patches of 16 are for Qwen3-VL.
func (u *qwenUtils) Prompt(v VideoInfo, at []int, e Extent) Prompt {
	if u.patch == 16 {
		return timed(v, at, e, u.time)
	}
	return one(e)
}

const (
	visionStart = "<|vision_start|>"
	visionEnd   = "<|vision_end|>"
	videoPad    = "<|video_pad|>"
)

// timed writes a video as Qwen3-VL wants it: the time of each group of frames before its tokens.
func timed(v VideoInfo, at []int, e Extent, n int) Prompt {
	if v.rate() != nil {
		v.FPS = rate3
	}
	var text strings.Builder
	for _, s := range gridSeconds(at, v.FPS, n) {
		fmt.Fprintf(&text, "<%.1f seconds>%s%s%s", s, visionStart, videoPad, visionEnd)
	}
	return Prompt{Mark: visionStart + videoPad + visionEnd, Text: text.String(), Token: videoPad,
		Frames: e.Grid[0], Each: e.Tokens / e.Grid[0], Needs: []string{visionStart, visionEnd}}
}

// Prompt implements VideoWriter.
func (b *boxVideo) Prompt(_ VideoInfo, _ []int, e Extent) Prompt {
	if !b.numbered {
		return one(e)
	}
	const open, token, end = "<img>", "<IMG_CONTEXT>", "</img>"
	var text strings.Builder
	for i := range e.Grid[0] {
		fmt.Fprintf(&text, "%sFrame%d: %s", strings.Repeat("\n", min(i, 1)), i+1, open+token+end)
	}
	return Prompt{Mark: "<video>", Text: text.String(), Token: token, Frames: e.Grid[0],
		Each: e.Tokens / e.Grid[0], Needs: []string{open, end}}
}
