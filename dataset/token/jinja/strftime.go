package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftimeLayouts gives Go's layout of C's conversions to text, in the C locale.
var strftimeLayouts = map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM",
	'P': "pm", 'Z': "", 'z': "", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04", 'r': "03:04:05 PM",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05"}

// strftimeNumber is a conversion to a number: its value, and how it is filled up to a width.
func strftimeNumber(t time.Time, c byte) (v int64, width int, pad byte, ok bool) {
	year, week := t.ISOWeek()
	hour12 := (t.Hour()+11)%12 + 1
	monday := (int(t.Weekday()) + 6) % 7
	switch c {
	case 'C':
		return int64(t.Year() / 100), 2, '0', true
	case 'd':
		return int64(t.Day()), 2, '0', true
	case 'e':
		return int64(t.Day()), 2, ' ', true
	case 'f': // Python's own
		return int64(t.Nanosecond() / 1000), 6, '0', true
	case 'g':
		return int64(year % 100), 2, '0', true
	case 'G':
		return int64(year), 1, '0', true
	case 'H':
		return int64(t.Hour()), 2, '0', true
	case 'I':
		return int64(hour12), 2, '0', true
	case 'j':
		return int64(t.YearDay()), 3, '0', true
	case 'k':
		return int64(t.Hour()), 2, ' ', true
	case 'l':
		return int64(hour12), 2, ' ', true
	case 'm':
		return int64(t.Month()), 2, '0', true
	case 'M':
		return int64(t.Minute()), 2, '0', true
	case 's':
		return t.Unix(), 1, '0', true
	case 'S':
		return int64(t.Second()), 2, '0', true
	case 'u':
		return int64(monday + 1), 1, '0', true
	case 'U':
		return int64((t.YearDay() + 6 - int(t.Weekday())) / 7), 2, '0', true
	case 'V':
		return int64(week), 2, '0', true
	case 'w':
		return int64(t.Weekday()), 1, '0', true
	case 'W':
		return int64((t.YearDay() + 6 - monday) / 7), 2, '0', true
	case 'y':
		return int64(t.Year() % 100), 2, '0', true
	case 'Y':
		return int64(t.Year()), 1, '0', true
	}
	return 0, 0, 0, false
}

// strftimeWidthMax bounds the width that a conversion asks for.
const strftimeWidthMax = 1 << 10

// strftime formats as glibc's function does, with its flags and widths, and what it does not know stays as
// it is. The time is taken as local without a zone, like Python's datetime.now().
func strftime(t time.Time, format string) string {
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		end := i + 1
		for end < len(format) && strings.IndexByte("-_0^#", format[end]) >= 0 {
			end++
		}
		flags := format[i+1 : end]
		digits := end
		for end < len(format) && format[end] >= '0' && format[end] <= '9' {
			end++
		}
		width, _ := strconv.Atoi(format[digits:end]) // none is 0
		if end < len(format) && (format[end] == 'E' || format[end] == 'O') {
			end++ // the locale's own numbers and eras, of which the C locale has none
		}
		if end == len(format) {
			out.WriteString(format[i:])
			break
		}
		if text, ok := convert(t, format[end], flags, min(width, strftimeWidthMax)); ok {
			out.WriteString(text)
		} else {
			out.WriteString(format[i : end+1])
		}
		i = end
	}
	return out.String()
}

// convert carries out one conversion.
func convert(t time.Time, c byte, flags string, width int) (string, bool) {
	text, pad := "", byte(' ')
	if v, digits, fill, ok := strftimeNumber(t, c); ok {
		text, pad = strconv.FormatInt(v, 10), fill
		width = max(width, digits)
	} else if layout, ok := strftimeLayouts[c]; ok {
		text = t.Format(layout)
	} else if lit, ok := map[byte]string{'%': "%", 'n': "\n", 't': "\t"}[c]; ok {
		text = lit
	} else {
		return "", false
	}
	for _, f := range flags {
		switch f {
		case '-':
			width = 0
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		case '^':
			text = strings.ToUpper(text)
		case '#':
			if text = strings.ToUpper(text); c == 'p' || c == 'Z' {
				text = strings.ToLower(text)
			}
		}
	}
	return fmt.Sprintf("%s%s", strings.Repeat(string(pad), max(0, width-len(text))), text), true
}
