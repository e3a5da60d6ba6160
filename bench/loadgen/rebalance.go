package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A member that gets one of these has to join again, of an unknown one without its id.
const (
	unknownMember       = kafkaError(25)
	rebalanceInProgress = kafkaError(27)
)

// whileJoining is the pause between two heartbeats of a member that waits for the others.
const whileJoining = 200 * time.Millisecond

// rebalances is one group whose members, with a connection each, join again and again: each with new metadata, without
// which a coordinator answers from what it has. One round ends when all members have their assignments.
type rebalances struct {
	options *options
	name    string
	members []*groupMember
	round   uint64
}

// groupMember is one of them. Its id stays.
type groupMember struct {
	c          *connection
	id         string
	generation int32
}

func newRebalances(o *options, number int) *rebalances {
	// members of an earlier run are in its groups until their sessions end
	return &rebalances{options: o, name: fmt.Sprintf("%s-%d-of-%d", o.groupPrefix, number, o.members/o.connections)}
}

func (r *rebalances) group() string { return r.name }

// begin connects all members, and has them join until all are in one generation.
func (r *rebalances) begin(address string) error {
	_ = r.end()
	r.members = nil
	for range r.options.members / r.options.connections {
		c, err := dial(address, r.options.login, r.options.deadline)
		if err != nil {
			return err
		}
		r.members = append(r.members, &groupMember{c: c})
	}
	r.round++
	var whole atomic.Int32 // the generation that has all members
	return r.each(func(m *groupMember) error {
		for {
			err := m.joinWhole(r.name, r.round, len(r.members), &whole)
			if errors.Is(err, unknownMember) { // as clients do it
				m.id = ""
			} else if !errors.Is(err, rebalanceInProgress) {
				return err
			}
		}
	})
}

// joinWhole joins and syncs once `whole` is the generation that it has joined. An error of another rebalance means that it
// has to join again.
func (m *groupMember) joinWhole(group string, round uint64, members int, whole *atomic.Int32) error {
	count, err := m.join(group, round)
	if err != nil {
		return err
	}
	if count == members {
		whole.Store(m.generation)
	}
	for whole.Load() != m.generation {
		if err := m.heartbeat(group); err != nil {
			return err
		}
		time.Sleep(whileJoining)
	}
	return m.sync(group)
}

func (r *rebalances) end() error {
	return r.each(func(m *groupMember) error { return m.c.Close() })
}

// step is one rebalance.
func (r *rebalances) step() error {
	r.round++
	return r.each(func(m *groupMember) error {
		count, err := m.join(r.name, r.round)
		if err != nil {
			return err
		}
		if count != 0 && count != len(r.members) {
			return fmt.Errorf("%d of %d members have joined", count, len(r.members))
		}
		return m.sync(r.name)
	})
}

// each member does it at the same time; the first error.
func (r *rebalances) each(do func(*groupMember) error) error {
	failures := make([]error, len(r.members))
	var running sync.WaitGroup
	for number, member := range r.members {
		running.Add(1)
		go func() {
			defer running.Done()
			failures[number] = do(member)
		}()
	}
	running.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// join gives how many members there are to the leader, to others 0.
func (m *groupMember) join(group string, round uint64) (int, error) {
	body, err := m.c.call(joinRequest(group, m.id, sessionTimeout, round))
	if err != nil {
		return 0, err
	}
	answer, err := readJoin(body)
	if err != nil {
		return 0, err
	}
	m.id, m.generation = answer.member, answer.generation
	return answer.members, nil
}

func (m *groupMember) sync(group string) error {
	return m.ask(syncRequest(group, m.id, m.generation))
}

func (m *groupMember) heartbeat(group string) error {
	return m.ask(heartbeatRequest(group, m.id, m.generation))
}

func (m *groupMember) ask(frame []byte) error {
	body, err := m.c.call(frame)
	if err != nil {
		return err
	}
	return checkError(body)
}
