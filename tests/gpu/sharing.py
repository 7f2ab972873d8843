"""What a second process does with memory of the GPU that it shares. It imports this by name."""

import dlbridge


def serve(connection, name):
    """Say how many elements are not what was said, and write the negative numbers."""
    from gpu import libraries

    consumer = libraries.find(name)
    stream = consumer.new_stream()
    while (came := connection.recv()) is not None:
        frame, expected = came
        array = dlbridge.convert(frame, name)
        wrong = int((consumer.values(array) != expected).sum())
        consumer.fill(array, -expected, stream)
        libraries.synchronize()
        connection.send(wrong)


def give_and_wait(connection, name, count, value):
    from gpu import libraries

    consumer = libraries.find(name)
    frame = dlbridge.shared_empty(count, "int32", device="cuda")
    stream = consumer.new_stream()
    consumer.fill(dlbridge.convert(frame, name, stream=stream), value, stream)
    connection.send(frame)
    connection.recv()           # until it is killed
