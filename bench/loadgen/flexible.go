package main

import "encoding/binary"

// Flexible versions: compact strings and arrays, whose lengths are one more and of variable size, and tagged fields.

func newFlexibleRequest(key, version int16) *encoder {
	e := newRequest(key, version)
	e.noTags()
	return e
}

func (e *encoder) noTags() { e.b = append(e.b, 0) }

// compactLength is that of a string or an array; -1 is null.
func (e *encoder) compactLength(n int) { e.b = binary.AppendUvarint(e.b, uint64(n+1)) }

func (e *encoder) compactString(v string) {
	e.compactLength(len(v))
	e.b = append(e.b, v...)
}

func (e *encoder) compactNull() { e.compactLength(-1) }

// compactLength gives -1 for null.
func (d *decoder) compactLength() int {
	n, size := binary.Uvarint(d.b)
	if size <= 0 || n > maxResponse {
		d.bad, d.b = true, nil
		return -1
	}
	d.b = d.b[size:]
	return int(n) - 1
}

func (d *decoder) compactString() string { return string(d.take(max(d.compactLength(), 0))) }

// tags skips tagged fields.
func (d *decoder) tags() {
	for range d.compactLength() + 1 {
		d.compactLength() // its number
		d.take(d.compactLength() + 1)
	}
}
