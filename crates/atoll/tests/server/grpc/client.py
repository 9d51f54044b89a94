"""What a program that uses grpcio does: the example of the reference system and what is around it.

Arguments: the address, a key, a certificate to trust or "-", and what to do.
"""
import base64
import json
import os
import sys
import threading

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from google.protobuf.descriptor_pool import DescriptorPool
from sandbox.v1 import sandbox_pb2 as pb
from sandbox.v1 import sandbox_pb2_grpc

address, key, certificate, what = sys.argv[1:5]
if certificate == "-":
    channel = grpc.insecure_channel(address)
else:
    with open(certificate, "rb") as file:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(file.read()))
stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
bearer = {"metadata": [("authorization", f"Bearer {key}")]}
plain = {"metadata": [("x-api-key", key)]}


def run(session, command, **more):
    return stub.Exec(pb.ExecRequest(session_id=session, command=command, **more), **bearer)


def create(**fields):
    return stub.CreateSession(pb.CreateSessionRequest(**fields), **bearer).session


def destroy(session):
    assert stub.DestroySession(pb.DestroySessionRequest(session_id=session), **bearer).success


def example():
    """The example of the reference system, and the folders that it names."""
    session = create()
    assert session.status == "running" and len(session.allowed_hosts) > 3, session
    assert "github.com" in session.allowed_hosts, session
    id = session.session_id
    assert run(id, "python3 -c 'print(1+1)'", timeout=30).stdout == "2\n"
    written = stub.WriteFile(
        pb.WriteFileRequest(session_id=id, path="script.py", content="print('hello')", mode="w"), **plain
    )
    assert written.success and not written.HasField("error"), written
    assert run(id, "python3 script.py").stdout == "hello\n"
    read = stub.ReadFile(pb.ReadFileRequest(session_id=id, path="script.py"), **plain)
    assert read.success and read.content == "print('hello')", read
    assert run(id, "id -u").stdout == "1000\n"
    outputs = run(id, "echo r > /mnt/user-data/outputs/r && cat /mnt/user-data/outputs/r; touch /usr/x || echo no")
    assert outputs.stdout == "r\nno\n", outputs
    installed = stub.PipInstall(pb.PipInstallRequest(session_id=id, packages=["iniconfig==2.0.0"]), **bearer)
    assert installed.exit_code == 0, installed
    version = "python3 -c 'from importlib.metadata import version; print(version(\"iniconfig\"))'"
    assert run(id, version).stdout == "2.0.0\n"
    knock = "python3 -c 'import socket; print(socket.socket().connect_ex((\"127.0.0.1\", 2024)))'"
    assert run(id, knock).stdout == "111\n", "the process API is off"
    closed = create(session_id="closed", allowed_hosts=["localhost"])
    assert list(closed.allowed_hosts) == ["localhost"], closed
    refused = stub.PipInstall(pb.PipInstallRequest(session_id="closed", packages=["iniconfig"]), **bearer)
    assert refused.exit_code != 0, refused
    listed = stub.ListSessions(pb.ListSessionsRequest(), **bearer).sessions
    assert {s.session_id for s in listed} == {id, "closed"}, listed
    destroy(id)
    destroy("closed")
    try:
        stub.GetSession(pb.GetSessionRequest(session_id=id), **bearer)
        raise AssertionError("it is gone")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
    for wrong in [{}, {"metadata": [("authorization", "Bearer none")]}]:
        try:
            stub.ListSessions(pb.ListSessionsRequest(), **wrong)
            raise AssertionError("no key is asked for")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error


def stream():
    """The first byte comes before the command ends, and a cancelled call kills its command."""
    id = create(session_id="streamed").session_id
    command = "echo begun; until [ -e go ]; do sleep 0.05; done; echo é; exit 7"
    events = stub.ExecStream(pb.ExecStreamRequest(session_id=id, command=command), **bearer)
    first = next(events)
    assert (first.type, first.data) == ("stdout", "begun\n"), first
    stub.WriteFile(pb.WriteFileRequest(session_id=id, path="go", content="", mode="w"), **bearer)
    rest = list(events)
    assert rest[-1].type == "exit" and rest[-1].exit_code == 7, rest
    assert "".join(e.data for e in rest) == "é\n", rest
    run(id, "rm go")
    events = stub.ExecStream(pb.ExecStreamRequest(session_id=id, command="echo $$; exec sleep 600"), **bearer)
    pid = next(events).data.strip()
    events.cancel()
    until = f"i=0; while kill -0 {pid} 2>/dev/null && [ $i -lt 200 ]; do sleep 0.1; i=$((i+1)); done; kill -0 {pid}"
    assert run(id, until, timeout=60).exit_code != 0, "the command goes on"
    destroy(id)


def tenant():
    """Storage of a tenant outlives sessions and belongs to its tenant alone."""
    first = create(session_id="first", tenant_id="acme")
    assert first.tenant_id == "acme", first
    assert run("first", "echo kept > /mnt/user-data/outputs/f").exit_code == 0
    destroy("first")
    create(session_id="second", tenant_id="acme")
    assert run("second", "cat /mnt/user-data/outputs/f").stdout == "kept\n"
    create(session_id="other", tenant_id="rival")
    assert run("other", "cat /mnt/user-data/outputs/f").exit_code != 0
    destroy("second")
    destroy("other")


def describe():
    """Health and reflection, which need no key."""
    health = health_pb2_grpc.HealthStub(channel)
    for service in ["", "sandbox.v1.SandboxService"]:
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer
    watch = health.Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
    database = ProtoReflectionDescriptorDatabase(channel)
    assert "sandbox.v1.SandboxService" in database.get_services(), database.get_services()
    service = DescriptorPool(database).FindServiceByName("sandbox.v1.SandboxService")
    told = {
        message: {field.name: field.number for field in DescriptorPool(database).FindMessageTypeByName(message).fields}
        for message in sorted({"sandbox.v1.SessionInfo"} | {
            kind.full_name for m in service.methods for kind in (m.input_type, m.output_type)})
    }
    print(json.dumps({"methods": sorted(m.name for m in service.methods), "fields": told}))


def many():
    """Calls of one connection do not wait for each other."""
    id = create(session_id="many").session_id
    answers = []
    calls = [threading.Thread(target=lambda n=n: answers.append(run(id, f"echo {n}").stdout)) for n in range(20)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert sorted(answers) == sorted(f"{n}\n" for n in range(20)), answers
    destroy(id)


def own_kernel():
    """Under a runtime with a kernel of its own commands run as ever, with the folders that the reference system has."""
    id = create(session_id="own", allowed_hosts=["localhost"]).session_id
    assert run(id, "id -u; pwd").stdout == "1000\n/workspace\n"
    assert run(id, "python3 -c 'print(6 * 7)'").stdout == "42\n"
    assert run(id, "echo x > f && cat f; exit 3") == pb.ExecResponse(exit_code=3, stdout="x\n")
    late = run(id, "echo begun; sleep 600", timeout=2)
    assert late.timed_out and (late.exit_code, late.stdout) == (-1, "begun\n"), late
    events = list(stub.ExecStream(pb.ExecStreamRequest(session_id=id, command="echo out; exit 4"), **bearer))
    assert (events[0].data, events[-1].type, events[-1].exit_code) == ("out\n", "exit", 4), events
    assert run(id, "cd /mnt/user-data/outputs && touch f && test -O f").exit_code == 0
    sessions = stub.ListSessions(pb.ListSessionsRequest(), **bearer).sessions
    assert [session.session_id for session in sessions] == ["own"], sessions
    destroy(id)
    tenant()


def hosts():
    """What a session reaches that names nothing."""
    session = create()
    print(json.dumps(sorted(session.allowed_hosts)))
    destroy(session.session_id)


def made():
    """One session, which stays."""
    print(create(session_id="made").container_id)


def process_api():
    """What a program inside a session does with the process API."""
    id = create(session_id="api").session_id
    with open(os.path.join(os.path.dirname(__file__), "process_api.py")) as file:
        probe = base64.b64encode(file.read().encode()).decode()
    probed = run(id, f"echo {probe} | base64 -d > probe.py && python3 probe.py", timeout=120)
    assert (probed.exit_code, probed.stdout) == (0, "done\n"), probed


CALLS = [example, stream, tenant, describe, many, own_kernel, hosts, made, process_api]
{call.__name__: call for call in CALLS}[what]()
