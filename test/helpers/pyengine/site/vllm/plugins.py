loaded = False


def load_general_plugins():
    global loaded
    loaded = True
