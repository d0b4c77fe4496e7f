import multiprocessing


def is_in_ray_actor():
    return False


def get_mp_context():
    return multiprocessing.get_context("spawn")
