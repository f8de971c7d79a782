def test_before(wait):
    wait()


def test_culprit_that_waits(launch, wait):
    launch()
    wait()


def test_innocent(wait):
    wait()


def test_culprit_that_does_not_wait(launch):
    launch()


def test_innocent_too(wait):
    wait()


def test_fails(wait):
    wait()
    raise AssertionError("one is not two")


def test_after(wait):
    wait()
