package main

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"time"
)

const (
	operationCommit            = "commit"
	operationFetch             = "fetch"
	operationFetchAll          = "fetch-all"
	operationHeartbeat         = "heartbeat"
	operationRebalance         = "rebalance"
	operationConsumerHeartbeat = "consumer-heartbeat"
	operationConsumerRebalance = "consumer-rebalance"
	operationConsumerAssembly  = "consumer-assembly"
	operationStore             = "store"
	operationHandshake         = "handshake"
	operationLogin             = "login"
)

// operation is what one connection does over and over.
type operation interface {
	// group whose coordinator gets the requests
	group() string
	// begin makes ready what the requests need; the server may say that it is not available yet
	begin(c *connection) error
	// request is the next frame, valid until the next call
	request() []byte
	// check gives the error of the answer to the last request
	check(body []byte) error
}

func newOperation(o *options, number int) (operation, error) {
	group := fmt.Sprintf("%s-%d", o.groupPrefix, number)
	switch o.operation {
	case operationCommit:
		return newCommit(group, o), nil
	case operationFetch:
		return &fetch{newCommit(group, o), fetchRequest(group, o.topic, o.partitions)}, nil
	case operationFetchAll:
		return &fetch{newCommit(group, o), fetchRequest(group, "", o.partitions)}, nil
	case operationHeartbeat:
		return &heartbeats{name: group, count: o.members / o.connections}, nil
	case operationConsumerHeartbeat:
		return newConsumerHeartbeats(o, number), nil
	case operationStore:
		return newStore(group, o), nil
	}
	return nil, fmt.Errorf("no operation %q: see -help", o.operation)
}

// entry gives what a worker does that makes a new connection each time; nil for the others. A handshake ends before the
// login, as that of somebody without an account.
func entry(o *options) func() error {
	switch o.operation {
	case operationHandshake:
		return func() error {
			c, err := net.DialTimeout("tcp", o.bootstrap, o.deadline)
			if err != nil {
				return err
			}
			defer func() { c.Close() }()
			if err := c.SetDeadline(time.Now().Add(o.deadline)); err != nil {
				return err
			}
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake()
		}
	case operationLogin:
		return func() error {
			c, err := dial(o.bootstrap, o.login, o.deadline)
			if err == nil {
				c.Close()
			}
			return err
		}
	}
	return nil
}

// commit is an OffsetCommit of a simple group; each writes other offsets.
type commit struct {
	name       string
	frame      []byte
	offsets    []int
	value      uint64
	partitions int
}

func newCommit(group string, o *options) *commit {
	frame, offsets := commitRequest(group, o.topic, o.partitions)
	return &commit{group, frame, offsets, 0, o.partitions}
}

func (m *commit) group() string { return m.name }

func (m *commit) begin(c *connection) error {
	body, err := c.call(m.frame)
	if err != nil {
		return err
	}
	return m.check(body)
}

func (m *commit) request() []byte {
	m.value++
	for _, position := range m.offsets {
		binary.BigEndian.PutUint64(m.frame[position:], m.value)
	}
	return m.frame
}

func (m *commit) check(body []byte) error { return checkCommit(body, m.partitions) }

// store commits in one group after the other, all of them first of all: what many groups and offsets cost to keep.
type store struct {
	commits []*commit
	at      int
}

func newStore(group string, o *options) *store {
	s := &store{}
	name := fmt.Sprintf("%s-stored-%d", group, o.partitions) // the members of heartbeats are in others
	for number := range o.members / o.connections {
		s.commits = append(s.commits, newCommit(sameHash(name, number), o))
	}
	return s
}

func (s *store) group() string { return s.commits[0].group() }

func (s *store) begin(c *connection) error {
	for _, each := range s.commits {
		if err := each.begin(c); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) request() []byte {
	s.at = (s.at + 1) % len(s.commits)
	return s.commits[s.at].request()
}

func (s *store) check(body []byte) error { return s.commits[s.at].check(body) }

// fetch is an OffsetFetch of what one commit wrote before.
type fetch struct {
	commit *commit
	frame  []byte
}

func (f *fetch) group() string             { return f.commit.name }
func (f *fetch) begin(c *connection) error { return f.commit.begin(c) }
func (f *fetch) request() []byte           { return f.frame }
func (f *fetch) check(body []byte) error   { return checkFetch(body, f.commit.partitions) }

// sessionTimeout in milliseconds: no member shall expire between two of its heartbeats.
const sessionTimeout = 60_000

// heartbeats of members that are alone in their groups, one after the other. All groups of a connection have the same
// coordinator: their names are made so that they hash to the partition of the first one.
type heartbeats struct {
	name   string
	count  int
	frames [][]byte
	at     int
}

func (h *heartbeats) group() string { return sameHash(h.name, 0) }

func (h *heartbeats) begin(c *connection) error {
	h.frames = h.frames[:0]
	for number := range h.count {
		group := sameHash(h.name, number)
		member := groupMember{c: c}
		if _, err := member.join(group, 0); err != nil {
			return err
		}
		if err := member.sync(group); err != nil {
			return err
		}
		h.frames = append(h.frames, heartbeatRequest(group, member.id, member.generation))
	}
	return nil
}

func (h *heartbeats) request() []byte {
	h.at = (h.at + 1) % len(h.frames)
	return h.frames[h.at]
}

func (h *heartbeats) check(body []byte) error { return checkError(body) }

// sameHash gives the name of another group with the same Java hash code, and so the same coordinator: in front stand pairs
// of characters, "Aa" or "BB" by the bits of the number, which hash alike.
func sameHash(name string, number int) string {
	pairs := [2]string{"Aa", "BB"}
	prefix := ""
	for bit := range 16 {
		prefix += pairs[number>>bit&1]
	}
	return prefix + name
}
