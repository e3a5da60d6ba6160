// A client of franz-go for tests: SASL_SSL by one mechanism, a commit and a read of it, or a group that it joins. It prints
// one line for each thing that it has done, and the name of Kafka's error, or what franz-go says, when that failed.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type asked struct {
	Address, Authorities, Mechanism, User, Password, Group, Topic string
	// Join: become a member of the group in the place of a commit.
	Join bool
	// Seconds after which it gives up.
	Seconds int
}

func mechanism(a asked) sasl.Mechanism {
	switch a.Mechanism {
	case "PLAIN":
		return plain.Auth{User: a.User, Pass: a.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: a.User, Pass: a.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: a.User, Pass: a.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: a.Password}.AsMechanism()
}

func named(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return fmt.Sprintf("%T: %v", err, err)
}

func commit(ctx context.Context, client *kgo.Client, a asked, offset int64) error {
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group = a.Group
	partition := kmsg.NewOffsetCommitRequestTopicPartition()
	partition.Offset = offset
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = a.Topic, []kmsg.OffsetCommitRequestTopicPartition{partition}
	request.Topics = []kmsg.OffsetCommitRequestTopic{topic}
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
}

func committed(ctx context.Context, client *kgo.Client, a asked) (int64, error) {
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = a.Group
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.Partitions = a.Topic, []int32{0}
	group.Topics = []kmsg.OffsetFetchRequestGroupTopic{topic}
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Groups = []kmsg.OffsetFetchRequestGroup{group}
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	if len(answer.Groups) > 0 {
		if err := kerr.ErrorForCode(answer.Groups[0].ErrorCode); err != nil {
			return 0, err
		}
		found := answer.Groups[0].Topics[0].Partitions[0]
		return found.Offset, kerr.ErrorForCode(found.ErrorCode)
	}
	found := answer.Topics[0].Partitions[0]
	return found.Offset, kerr.ErrorForCode(found.ErrorCode)
}

// Commits once for each line of the standard input, so that rights can change in between.
func commits(ctx context.Context, client *kgo.Client, a asked, lines *bufio.Scanner) {
	for offset := int64(1); lines.Scan(); offset++ {
		if err := commit(ctx, client, a, offset); err != nil {
			fmt.Println("refused", named(err))
			continue
		}
		found, err := committed(ctx, client, a)
		if err != nil {
			fmt.Println("refused", named(err))
			continue
		}
		fmt.Println("committed", found)
	}
}

func join(ctx context.Context, client *kgo.Client, assigned chan struct{}) {
	for {
		polled, done := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := client.PollFetches(polled)
		done()
		select {
		case <-assigned:
			fmt.Println("joined")
			return
		default:
		}
		for _, each := range fetches.Errors() {
			if errors.Is(each.Err, context.DeadlineExceeded) && ctx.Err() == nil {
				continue
			}
			fmt.Println("refused", named(each.Err))
			return
		}
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	var a asked
	if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
		panic(err)
	}
	pem, err := os.ReadFile(a.Authorities)
	if err != nil {
		panic(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(a.Seconds)*time.Second)
	defer cancel()
	assigned := make(chan struct{})
	options := []kgo.Opt{
		kgo.SeedBrokers(a.Address),
		kgo.SASL(mechanism(a)),
		kgo.RequestRetries(3),
		// The certificate of a test is for localhost.
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted, ServerName: "localhost", MinVersion: tls.VersionTLS12}),
	}
	if !a.Join { // a commit as it is written here names its topic, which later versions do by its id
		versions := kversion.Stable()
		versions.SetMaxKeyVersion(8, 9)
		versions.SetMaxKeyVersion(9, 9)
		options = append(options, kgo.MaxVersions(versions))
	} else {
		options = append(options, kgo.ConsumerGroup(a.Group), kgo.ConsumeTopics(a.Topic),
			kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(assigned) }))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	defer client.CloseAllowingRebalance()
	if a.Join {
		join(ctx, client, assigned)
	} else {
		commits(ctx, client, a, lines)
	}
}
